# shellcheck shell=bash
# Shared by the scripts in this folder: what run.sh says of the environment, its checks, and how a run is submitted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${BUCKET:=tlm}" "${IMAGES:=build/images.json}" "${PARAMETERS:=k8s/check/params.yaml}" "${WORK:=build/check}"
: "${SERVICE_ACCOUNT:=tlm-runner}" "${RESUBMIT:=0}" "${PYTHON:=.venv/bin/python}"
[ -x "$(command -v "$PYTHON")" ] || { echo "$PYTHON is missing; run: make install, or set PYTHON" >&2; exit 1; }
[ -f "$IMAGES" ] || { echo "$IMAGES is missing; run: make images, or set IMAGES" >&2; exit 1; }
[ -n "${KF_PIPELINES_ENDPOINT:-}" ] || { echo 'KF_PIPELINES_ENDPOINT is not set: where is Kubeflow Pipelines?' >&2; exit 1; }
mkdir -p "$WORK"

# submit_to ROOT NAME OPTION...: run the pipeline on the toy data with its results under ROOT, and wait
submit_to() {
  "$PYTHON" -m pipelines.run submit --params "$PARAMETERS" --service-account "$SERVICE_ACCOUNT" \
    --set "corpus_paths=s3://$BUCKET/corpus/" --set "task_path=s3://$BUCKET/task/" --set "store_root=$1" \
    --run-name "$2" --wait --timeout 3600 --resubmit "$RESUBMIT" "${@:3}"
}
