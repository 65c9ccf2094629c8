#!/usr/bin/env bash
# From nothing to a cluster that can run the pipeline; may be repeated. Its steps are scripts of their own.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for step in cluster kfp elasticsearch secrets images; do
  echo "== $step"
  "k8s/kind/$step.sh"
done
