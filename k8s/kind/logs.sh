#!/usr/bin/env bash
# Collect pods, events and logs in build/kind/logs, to find out why something failed. Continues if a part is missing.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need kind kubectl
set +e

logs="$WORK/logs"
mkdir -p "$logs"
kubectl get pods --all-namespaces --output wide > "$logs/pods.txt" 2>&1
kubectl get events --all-namespaces --sort-by=.lastTimestamp > "$logs/events.txt" 2>&1
kubectl describe nodes > "$logs/nodes.txt" 2>&1
kubectl --namespace "$NAMESPACE" get workflows --output yaml > "$logs/workflows.yaml" 2>&1
kubectl --namespace tlm get elasticsearch --output yaml > "$logs/elasticsearch.yaml" 2>&1
for namespace in "$NAMESPACE" tlm elastic-system; do
  kubectl --namespace "$namespace" describe pods > "$logs/$namespace-pods.txt" 2>&1
  for pod in $(kubectl --namespace "$namespace" get pods --output name); do
    kubectl --namespace "$namespace" logs "$pod" --all-containers --prefix --tail=500 > "$logs/$namespace-${pod#pod/}.log" 2>&1
  done
done
kind export logs "$logs/node" --name "$CLUSTER" > /dev/null 2>&1
echo "$logs"
