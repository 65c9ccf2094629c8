#!/usr/bin/env bash
# Create the cluster (one node) if it does not exist.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need docker kind kubectl

# Kubeflow Pipelines, Elasticsearch and Kubernetes itself request nearly two CPUs before the first step starts.
have="$(docker info --format '{{.NCPU}}')"
if [ "$have" -lt "${MIN_CPUS:=4}" ]; then
  echo "the cluster needs $MIN_CPUS CPUs, but Docker has $have: give it more, or set MIN_CPUS=$have to try nevertheless" >&2
  exit 1
fi
if ! kind get clusters 2> /dev/null | grep -qx "$CLUSTER"; then
  kind create cluster --name "$CLUSTER" --image "$NODE_IMAGE" --wait 180s
fi
kind export kubeconfig --name "$CLUSTER"
kubectl get nodes
