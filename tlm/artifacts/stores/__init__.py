"""Where artifacts are stored: a local folder or an S3 bucket, behind one interface."""
