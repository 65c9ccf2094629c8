#!/usr/bin/env bash
# Submit the pipeline twice and check the results:
#   the first run must succeed and give the same data as the same run on this machine, also with Elasticsearch;
#   the second must succeed and write nothing: no file in the store, no document and no bulk request in Elasticsearch.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need kubectl curl
[ -x "$PYTHON" ] || { echo "$PYTHON is missing; run: make install, or set PYTHON" >&2; exit 1; }
[ -f "$IMAGES" ] || { echo "$IMAGES is missing; run: make images TORCH=cpu" >&2; exit 1; }
parameters=k8s/kind/params.yaml
root="s3://$BUCKET/artifacts"

submit() {
  "$PYTHON" -m pipelines.run submit --host http://127.0.0.1:8888 --images "$IMAGES" --params "$parameters" \
    --service-account tlm-runner --run-name "$1" --wait --timeout 3600
}

state() { "$PYTHON" -m k8s.kind.state "$root" > "$WORK/$1.json"; }

# The number of write requests since Elasticsearch started.
writes() {
  k8s/elasticsearch/request.sh GET '/tlm-*/_stats/indexing,bulk?filter_path=_all.total.indexing.index_total,_all.total.bulk.total_operations' \
    > "$WORK/$1-writes.json"
  grep -q total_operations "$WORK/$1-writes.json"
}

echo '== the same run on this machine'
"$PYTHON" -m k8s.kind.expected "$parameters" > "$WORK/expected.json"

forward "$NAMESPACE" seaweedfs 9000
forward "$NAMESPACE" ml-pipeline 8888
use_store
"$PYTHON" -m k8s.kind.data "$BUCKET"

echo '== the first run'
"$PYTHON" -m pipelines.run upload --host http://127.0.0.1:8888 --images "$IMAGES"
submit first
state first
writes first
"$PYTHON" -m k8s.kind.compare data "$WORK/expected.json" "$WORK/first.json"

echo '== the second run'
submit second
state second
writes second
"$PYTHON" -m k8s.kind.compare nothing-written "$WORK/first.json" "$WORK/second.json"
cmp "$WORK/first-writes.json" "$WORK/second-writes.json"
echo 'no write requests'
