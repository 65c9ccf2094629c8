#!/usr/bin/env bash
# Create the secrets of the runs: the keys of KFP's own store, and two API keys for Elasticsearch.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need kubectl python3

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
(
  umask 077
  secret "$NAMESPACE" mlpipeline-minio-artifact accesskey > "$folder/AWS_ACCESS_KEY_ID"
  secret "$NAMESPACE" mlpipeline-minio-artifact secretkey > "$folder/AWS_SECRET_ACCESS_KEY"
)
kubectl --namespace "$NAMESPACE" create secret generic tlm-s3 --from-file "$folder" --dry-run=client --output yaml |
  kubectl --namespace "$NAMESPACE" apply --server-side --force-conflicts --filename -
k8s/elasticsearch/create-keys.sh "$NAMESPACE"
