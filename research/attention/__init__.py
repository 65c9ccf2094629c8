"""The attention heads of encoders, and the tokens that they attend to."""
