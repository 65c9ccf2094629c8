"""Components of studies."""
