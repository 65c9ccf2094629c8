"""The Kubeflow Pipelines API: submit, wait, upload, schedule."""
