"""Studies and benchmarks: what serves the paper and our claims, not the daily use of tlm."""
