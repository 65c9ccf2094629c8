"""Four million documents, once: an hour: see `benchmarks.embedded`."""

from benchmarks.embedded import row

ROW = row("embedded_4m", 4_000_000, rounds=1, asked=100)
