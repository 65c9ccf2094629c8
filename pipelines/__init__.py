"""The Kubeflow pipelines, and the command line that runs, compiles and submits them."""
