#!/usr/bin/env bash
# Create a cluster that can run the pipeline. Safe to repeat. Each step is a separate script.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for step in cluster kfp elasticsearch secrets images; do
  echo "== $step"
  "k8s/kind/$step.sh"
done
