"""What the heads of an encoder attend to."""
