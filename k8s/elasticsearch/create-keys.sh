#!/usr/bin/env bash
# Create the two API keys of the runs and store them as Secrets in the namespace of the runs: create-keys.sh [NAMESPACE]
#   tlm-elasticsearch-writer   roles publisher and writer: the steps preflight and index
#   tlm-elasticsearch-reader   role reader: the steps that search
# Run it again to replace the keys: the old ones are invalidated once the new ones are in place.
# TLM_KEY_EXPIRATION, such as 90d, sets when the keys expire.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

namespace="${1:-kubeflow}"
elasticsearch="${ELASTICSEARCH_NAMESPACE:-tlm}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

# body NAME ROLE...: the request body, made from roles/ROLE.json
body() {
  python3 - "$@" << 'PYTHON'
import json, os, sys

name, *roles = sys.argv[1:]
asked = {"name": name, "role_descriptors": {}, "metadata": {"made_by": "tlm"}}
for role in roles:
    with open(f"roles/{role}.json") as file:
        asked["role_descriptors"][role] = json.load(file)
if os.environ.get("TLM_KEY_EXPIRATION"):
    asked["expiration"] = os.environ["TLM_KEY_EXPIRATION"]
print(json.dumps(asked))
PYTHON
}

# field NAME: one field of the JSON object on stdin
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# older NAME ID: the request that invalidates all valid keys of that name except ID; empty if there are none
older() {
  python3 -c '
import json, sys

name, kept = sys.argv[1:]
keys = json.load(sys.stdin)["api_keys"]
ids = [key["id"] for key in keys if key["name"] == name and key["id"] != kept and not key["invalidated"]]
if ids:
    print(json.dumps({"ids": ids}))
' "$@"
}

# create NAME ROLE...: create the key and the Secret of the same name, then invalidate older keys
create() {
  local name="$1" made id ended key="$namespace-$1"
  made="$(./request.sh POST /_security/api_key "$(body "$key" "${@:2}")")"
  id="$(field id <<< "$made")"
  (umask 077 && field encoded <<< "$made" | tr -d '\n' > "$folder/api-key")
  kubectl --namespace "$namespace" create secret generic "$name" --dry-run=client --output yaml \
    --from-file "$folder/api-key" --from-file "$folder/ca.crt" |
    kubectl label --local --filename - --dry-run=client --output yaml app.kubernetes.io/part-of=tlm |
    kubectl --namespace "$namespace" apply --server-side --force-conflicts --filename - > /dev/null
  ended="$(./request.sh GET "/_security/api_key?name=$key" | older "$key" "$id")"
  if [ -n "$ended" ]; then
    ./request.sh DELETE /_security/api_key "$ended" > /dev/null
  fi
  echo "secret $namespace/$name: API key $id with ${*:2}"
}

kubectl --namespace "$elasticsearch" get secret tlm-es-http-certs-public \
  --output go-template='{{index .data "ca.crt" | base64decode}}' > "$folder/ca.crt"
create tlm-elasticsearch-writer publisher writer
create tlm-elasticsearch-reader reader
