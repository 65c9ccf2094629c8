"""The Kubeflow pipelines and the program that runs or compiles them."""
