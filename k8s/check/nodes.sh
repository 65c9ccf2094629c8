#!/usr/bin/env bash
# Check training on several nodes: stage 1 in one pod and as a TrainJob of two, on toy data; the losses must be the same.
# Needs Kubeflow Trainer 2.2 or later with the runtime torch-distributed, and room for two pods of a CPU and 3 GiB each.
#   The environment is that of run.sh; beside it
#   OVERRIDES                  settings of the runs; the defaults take some minutes on one core  [see below]
#   LOSE                       if set, a third run has the second pod of its TrainJob deleted by force after the first
#                              snapshot, and must have the same losses, too; kubectl must reach the cluster  []
#   NAMESPACE                  of the runs, for kubectl  [kubeflow]
# Results are kept under s3://$BUCKET/nodes-…, and nothing that is there already is used.
# shellcheck source=k8s/check/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
: "${LOSE:=}" "${NAMESPACE:=kubeflow}"
# Few steps and a low learning rate, so that rounding errors stay small (losses.py); a wide model, so that training takes
# more than the minute after which the first snapshot comes. On much faster cores, LOSE needs a wider one; batches
# larger than the toy data do not help.
: "${OVERRIDES:=train.steps=40 train.warmup_steps=4 train.lr=0.0005 train.external_batch=1024 train.internal_batch=64 \
train.accumulation=4 model.hidden=640 model.layers=6 finetune.steps=20 finetune.evaluations=2}"
root="s3://$BUCKET/nodes-$(date +%Y%m%d-%H%M%S)"

# submit NAME NODES: a run with a root of its own
submit() { submit_to "$root/$1" "nodes $1" --file "$WORK/tlm-$2.yaml" --set "run_overrides=$OVERRIDES"; }

# Once the training of a run has saved its state, delete the second pod of its TrainJob; fails if there is none.
lose_a_pod() {
  local key pod
  until key="$("$PYTHON" -m k8s.check.losses snapshot "$root/$1")"; do sleep 3; done
  pod="$(kubectl -n "$NAMESPACE" get pods -o name \
    -l "jobset.sigs.k8s.io/jobset-name=tlm-$key,batch.kubernetes.io/job-completion-index=1")"
  [ -n "$pod" ] || { echo "the TrainJob tlm-$key has no second pod" >&2; return 1; }
  kubectl -n "$NAMESPACE" delete "$pod" --grace-period=0 --force
  "$PYTHON" -m k8s.check.losses snapshot "$root/$1" > "$WORK/lost.key" || { echo 'training had ended before' >&2; return 1; }
}

"$PYTHON" -m k8s.check.data "$BUCKET"
for nodes in 1 2; do "$PYTHON" -m pipelines.run compile --nodes "$nodes" -o "$WORK/tlm-$nodes.yaml" --images "$IMAGES"; done
echo '== one pod'
submit one 1
echo '== two pods'
submit two 2
"$PYTHON" -m k8s.check.losses compare "$root/one" "$root/two"
if [ -n "$LOSE" ]; then
  echo '== two pods, one of which is lost'
  lose_a_pod lost & losing=$!
  trap 'kill "$losing" 2> /dev/null || true' EXIT
  submit lost 2
  kill "$losing" 2> /dev/null && { echo 'no pod was lost, because there was no snapshot; set OVERRIDES' >&2; exit 1; }
  wait "$losing"
  "$PYTHON" -m k8s.check.losses compare "$root/one" "$root/lost"
fi
