#!/usr/bin/env bash
# End a server that runs need, and start it again: outage.sh stop|start elasticsearch|s3|database|api|argo
#   For a Kubeflow Pipelines installed by its own manifests in the namespace kubeflow, and an Elasticsearch of ECK in tlm.
#   Where servers have other names, set OUTAGE to a script of your own with the same two arguments.
set -euo pipefail
scale() { kubectl -n kubeflow scale "deployment/$1" --replicas "$2"; }
[ "$1" = stop ] && replicas=0 || replicas=1
case "$2" in
  elasticsearch) [ "$1" = start ] || kubectl -n tlm delete pod -l elasticsearch.k8s.elastic.co/cluster-name=tlm --grace-period=0 --force ;;
  s3) scale seaweedfs "$replicas" ;;
  database) scale mysql "$replicas" ;;
  api) scale ml-pipeline "$replicas" ;;
  argo) scale workflow-controller "$replicas" ;;
  *) echo "outage.sh cannot end $2" >&2; exit 2 ;;
esac
