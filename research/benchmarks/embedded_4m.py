"""Four million documents, once: an hour: see `research.benchmarks.embedded`."""

from research.benchmarks.embedded import row

ROW = row("embedded_4m", 4_000_000, rounds=1, asked=100)
