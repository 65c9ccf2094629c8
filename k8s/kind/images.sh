#!/usr/bin/env bash
# Load the images that `make images` built into the cluster's node.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need docker kind python3

[ -f "$IMAGES" ] || { echo "$IMAGES is missing; run: make images TORCH=cpu" >&2; exit 1; }
python3 -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1])).values()))' "$IMAGES" |
  while read -r image; do kind load docker-image --name "$CLUSTER" "$image" < /dev/null; done
