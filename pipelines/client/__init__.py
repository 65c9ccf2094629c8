"""Use the API of Kubeflow Pipelines: submit, wait, upload."""
