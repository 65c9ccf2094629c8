"""Reports as pages, and outputs for the pipeline's user interface."""
