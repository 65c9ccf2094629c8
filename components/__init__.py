"""The steps as Kubeflow components: thin wrappers, all logic is in `tlm`."""
