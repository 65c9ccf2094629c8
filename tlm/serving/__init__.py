"""Small and fast models, and a server for them."""
