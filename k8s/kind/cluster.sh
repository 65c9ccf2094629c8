#!/usr/bin/env bash
# Create the cluster (one node) if it does not exist.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need docker kind kubectl

if ! kind get clusters 2> /dev/null | grep -qx "$CLUSTER"; then
  kind create cluster --name "$CLUSTER" --image "$NODE_IMAGE" --wait 180s
fi
kind export kubeconfig --name "$CLUSTER"
kubectl get nodes
