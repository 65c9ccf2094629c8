"""What is timed, against whom: ``python -m benchmarks``. No part of the product, and nothing in it imports this."""
