#!/usr/bin/env bash
# Delete the cluster and everything in it.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need kind

kind delete cluster --name "$CLUSTER"
rm -rf "$WORK"
