#!/usr/bin/env bash
# Remove the cluster with all that is in it.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need kind

kind delete cluster --name "$CLUSTER"
rm -rf "$WORK"
