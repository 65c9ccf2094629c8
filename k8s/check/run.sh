#!/usr/bin/env bash
# Check an installation: run the pipeline twice on toy data.
#   The first run must succeed and give the same data as the same run on this machine, also with Elasticsearch;
#   the second must succeed and write nothing: no file in the store, no document and no bulk request in Elasticsearch.
# Any Kubeflow Pipelines and any store will do. From the environment:
#   KF_PIPELINES_ENDPOINT      address of the API; KF_PIPELINES_UI_ENDPOINT, KF_PIPELINES_SA_TOKEN_PATH as `submit` has them
#   AWS_…                      store and keys as boto3 reads them; the pods reach the same store by their own addresses
#   BUCKET                     bucket for data and results, made if it does not exist  [tlm]
#   IMAGES                     file that `make images` wrote  [build/images.json]
#   PARAMETERS                 file of parameters  [k8s/check/params.yaml]
#   SERVICE_ACCOUNT            of the pods  [tlm-runner]
#   RESUBMIT                   how often a run that failed is started again  [0]
#   WORK                       folder for what was seen  [build/check]
#   PYTHON                     with this project's packages  [.venv/bin/python]
# Elasticsearch's own count of writes is compared where k8s/elasticsearch/request.sh reaches it (ECK in this cluster).
# shellcheck source=k8s/check/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
root="s3://$BUCKET/artifacts"

submit() { submit_to "$root" "$1" --images "$IMAGES"; }

state() { "$PYTHON" -m k8s.check.state "$root" > "$WORK/$1.json"; }

# The number of write requests since Elasticsearch started.
writes() {
  k8s/elasticsearch/request.sh GET '/tlm-*/_stats/indexing,bulk?filter_path=_all.total.indexing.index_total,_all.total.bulk.total_operations' \
    > "$WORK/$1-writes.json" 2> "$WORK/writes.log" && grep -q total_operations "$WORK/$1-writes.json"
}

echo '== the same run on this machine'
env -u AWS_ENDPOINT_URL_S3 "$PYTHON" -m k8s.check.expected "$PARAMETERS" > "$WORK/expected.json"
"$PYTHON" -m k8s.check.data "$BUCKET"

echo '== the first run'
"$PYTHON" -m pipelines.run upload --images "$IMAGES"
submit first
state first
counted=yes
writes first || { counted=; echo "Elasticsearch's own count of writes is not compared: see $WORK/writes.log"; }
"$PYTHON" -m k8s.check.compare data "$WORK/expected.json" "$WORK/first.json"

echo '== the second run'
submit second
state second
"$PYTHON" -m k8s.check.compare nothing-written "$WORK/first.json" "$WORK/second.json"
if [ -n "$counted" ]; then
  writes second
  cmp "$WORK/first-writes.json" "$WORK/second-writes.json"
  echo 'no write requests'
fi
