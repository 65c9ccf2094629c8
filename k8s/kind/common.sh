# shellcheck shell=bash
# Shared by the scripts in this folder: versions, names, and a separate kubeconfig, so that no other cluster is touched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export NODE_IMAGE=kindest/node:v1.36.1  # with kind v0.32.0
export KFP=2.17.0                       # also in k8s/kfp
export ECK=3.5.0                        # also in k8s/kind/eck
export CLUSTER=tlm NAMESPACE=kubeflow BUCKET=tlm
export WORK=build/kind
export KUBECONFIG="$PWD/$WORK/kubeconfig"
export IMAGES=build/images.json
PYTHON="${PYTHON:-.venv/bin/python}"
mkdir -p "$WORK"

# need PROGRAM...: exit with a message if one of them is missing
need() {
  local program
  for program in "$@"; do
    command -v "$program" > /dev/null || { echo "$program is not installed; k8s/README.md says what is needed" >&2; exit 1; }
  done
}

forwards=()
end_forwards() {
  local id
  for id in ${forwards[@]+"${forwards[@]}"}; do kill "$id" 2> /dev/null || true; done  # bash before 4.4: empty = unset
}
trap end_forwards EXIT

# forward NAMESPACE SERVICE PORT [REMOTE]: forward the service's port (REMOTE, or the same) to a local one until the end.
# Only kubectl's own word counts: a port that answers may belong to another program.
forward() {
  local log="$WORK/port-forward-$3.log" _
  : > "$log"
  kubectl --namespace "$1" port-forward --address 127.0.0.1 "service/$2" "$3:${4:-$3}" >> "$log" 2>&1 &
  forwards+=("$!")
  for _ in $(seq 60); do
    grep -q "^Forwarding from 127.0.0.1:$3 " "$log" && return
    kill -0 "$!" 2> /dev/null || break
    sleep 1
  done
  if (: < "/dev/tcp/127.0.0.1/$3") 2> /dev/null; then
    echo "port $3 is taken by another program; stop it, then repeat the command" >&2
  else
    echo "service/$2 cannot be reached at port $3; see $log" >&2
  fi
  exit 1
}

# use_store: point boto3 to the cluster's store, with KFP's own keys; needs an open forward to it
use_store() {
  AWS_ACCESS_KEY_ID="$(secret "$NAMESPACE" tlm-s3 AWS_ACCESS_KEY_ID)"
  AWS_SECRET_ACCESS_KEY="$(secret "$NAMESPACE" tlm-s3 AWS_SECRET_ACCESS_KEY)"
  export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
  export AWS_ENDPOINT_URL_S3=http://127.0.0.1:9000 AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
}

# secret NAMESPACE NAME KEY: print one value of a Secret
secret() { kubectl --namespace "$1" get secret "$2" --output go-template="{{index .data \"$3\" | base64decode}}"; }
