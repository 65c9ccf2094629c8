"""Small and fast models, to be served."""
