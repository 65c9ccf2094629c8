"""A million documents: see `research.benchmarks.embedded`."""

from research.benchmarks.embedded import row

ROW = row("embedded_1m", 1_000_000, rounds=3, asked=300)
