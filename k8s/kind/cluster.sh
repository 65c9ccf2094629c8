#!/usr/bin/env bash
# Create the cluster if it does not exist: one node, or one beside WORKERS others, which then run everything.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need docker kind kubectl

# Kubeflow Pipelines, Elasticsearch and Kubernetes itself request nearly two CPUs before the first step starts.
have="$(docker info --format '{{.NCPU}}')"
if [ "$have" -lt "${MIN_CPUS:=4}" ]; then
  echo "the cluster needs $MIN_CPUS CPUs, but Docker has $have: give it more, or set MIN_CPUS=$have to try nevertheless" >&2
  exit 1
fi
if ! kind get clusters 2> /dev/null | grep -qx "$CLUSTER"; then
  {
    printf 'kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n- role: control-plane\n'
    for _ in $(seq "${WORKERS:-0}"); do echo '- role: worker'; done
  } | kind create cluster --name "$CLUSTER" --image "$NODE_IMAGE" --wait 180s --config -
fi
kind export kubeconfig --name "$CLUSTER"
kubectl get nodes
