#!/usr/bin/env bash
# Install Kubeflow Pipelines, with the retries that pipelines ask for, and wait until it is available.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need kubectl git

kubectl apply --kustomize "https://github.com/kubeflow/pipelines/manifests/kustomize/cluster-scoped-resources?ref=$KFP&timeout=120s"
kubectl wait crd/applications.app.k8s.io --for condition=established --timeout=60s
kubectl apply --kustomize k8s/kfp
kubectl --namespace "$NAMESPACE" wait deployment --all --for condition=available --timeout=15m
kubectl --namespace "$NAMESPACE" get configmap workflow-controller-configmap --output jsonpath='{.data.workflowDefaults}' |
  grep -q 'retryPolicy: Always' || { echo 'the retry patch is not in effect' >&2; exit 1; }
