#!/usr/bin/env bash
# Check the kind cluster: its network policies, then two runs of the pipeline, the second of which must write nothing.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need kubectl curl

"$PYTHON" -m k8s.check.policies
forward "$NAMESPACE" seaweedfs 9000
forward "$NAMESPACE" ml-pipeline 8888
forward "$NAMESPACE" ml-pipeline-ui 8080 80
use_store
export KF_PIPELINES_ENDPOINT=http://127.0.0.1:8888 KF_PIPELINES_UI_ENDPOINT=http://127.0.0.1:8080
PYTHON="$PYTHON" k8s/check/run.sh
