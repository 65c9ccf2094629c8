"""The Kubeflow pipelines and the program that runs, compiles and submits them."""
