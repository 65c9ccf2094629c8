"""Training: tokens, the model, stage 1 (joint training on external and internal data), stage 2 (fine-tuning)."""
