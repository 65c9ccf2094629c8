#!/usr/bin/env bash
# Install ECK and the overlay (Elasticsearch, and what runs need); wait until Elasticsearch is green and reachable.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need kubectl

kubectl apply --server-side --filename "https://download.elastic.co/downloads/eck/$ECK/crds.yaml"
kubectl wait crd/elasticsearches.elasticsearch.k8s.elastic.co --for condition=established --timeout=60s
kubectl apply --server-side --kustomize k8s/kind/eck
kubectl --namespace elastic-system rollout status statefulset/elastic-operator --timeout=5m
kubectl apply --kustomize k8s/overlays/kind
pods=elasticsearch.k8s.elastic.co/cluster-name=tlm
# ECK asks the pods themselves for their health; the Service leads to those that are ready only
if ! kubectl --namespace tlm wait elasticsearch/tlm --for jsonpath='{.status.health}'=green --timeout=10m ||
  ! kubectl --namespace tlm wait pod --selector "$pods" --for condition=ready --timeout=5m; then
  {
    echo 'Elasticsearch is not green, or not ready. Its pods, their last log lines, and why a shard has no node:'
    kubectl --namespace tlm get pods --output wide || true
    kubectl --namespace tlm logs --selector "$pods" --tail=20 || true
    k8s/elasticsearch/request.sh GET '/_cluster/allocation/explain?pretty' || true
  } >&2
  exit 1
fi
