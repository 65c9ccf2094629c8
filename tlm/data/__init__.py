"""Reading, cleaning and splitting what people bring: corpora and labelled tasks."""
