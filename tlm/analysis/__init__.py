"""Looking into what was trained and what was retrieved: attention heads, subsets, samples."""
