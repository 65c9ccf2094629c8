"""Passages that a trained model would learn the task from (ISS: Wang et al., Findings of ACL 2023)."""
