"""An HTTP server for a model: the inference protocols that KServe speaks."""
