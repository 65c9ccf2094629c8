"""The resources of each step on a cluster: CPU, memory, scratch space, GPUs, secrets, retries. Local runs ignore it."""

from typing import Any, NamedTuple

from kfp import kubernetes
from kfp.dsl import PipelineTask

from tlm.runs.pods import (
    CONFIG_MAP,
    DATA_LIMITS,
    LEAST,
    S3_ADDRESSES,
    S3_KEYS,
    S3_SECRET,
    SCRATCH,
    SHARED_MEMORY,
    USER,
)
from tlm.settings.options import Pods

DAY = 86_400  # seconds
WEEK = 7 * DAY

ADDRESSES = ("TLM_ELASTICSEARCH_URL", *S3_ADDRESSES)
ELASTICSEARCH_FOLDER = "/etc/tlm/elasticsearch"  # the images' TLM_ELASTICSEARCH_SECRET
ELASTICSEARCH_SECRETS = (  # only steps that fill an index can write to it
    dict.fromkeys(("preflight", "index"), "tlm-elasticsearch-writer")
    | dict.fromkeys(("retrieve", "select", "rerank", "subsets", "task-subsets"), "tlm-elasticsearch-reader")
)
REGISTRY_FOLDER, REGISTRY_SECRET = "/etc/tlm/model-registry", "tlm-model-registry"  # TLM_MODEL_REGISTRY_SECRET


class Needs(NamedTuple):
    """Requests and limits of a step, as Kubernetes writes quantities."""

    cpu: str
    cpu_limit: str
    memory: str
    memory_limit: str
    scratch: str  # limit for downloads and unfinished files


SMALL = Needs("100m", "1", "256Mi", "1Gi", "1Gi")
MEDIUM = Needs("500m", "2", "1Gi", "4Gi", "20Gi")
LARGE = Needs(LEAST["cpu"], DATA_LIMITS["cpu"], LEAST["memory"], DATA_LIMITS["memory"], "200Gi")
NEEDS = (
    dict.fromkeys(("preflight", "plan-apart", "register", "none"), SMALL)
    | dict.fromkeys(("load-task", "load-tasks", "advise", "baseline", "mix", "report", "report-tasks"), MEDIUM)
    | {"train-on-nodes": MEDIUM}  # it starts other pods, perhaps from a published model, which it loads
    | dict.fromkeys(("load-corpus", "index", "retrieve", "export", "tokenizer", "plan"), LARGE)
    | dict.fromkeys(("plan-corpus", "stage-corpus", "dedup-corpus", "write-corpus"), LARGE)
    | dict.fromkeys(("select", "embed", "subsets", "models", "trials", "task-subsets", "shared-tokenizer"), LARGE)
    | {"publish-corpus": MEDIUM, "plan-together": LARGE}
)
# of the steps that take GPUs: the output of preflight that says how many; without one, all that a training pod has
TRAINING = dict.fromkeys(("train", "train-multitask"), "") | {"finetune": "finetune_gpus"}
TRAINING |= dict.fromkeys(("evaluate", "rerank"), "one_gpu")
LONG = (*TRAINING, "train-on-nodes")


def equip(step: PipelineTask, name: str, training: Pods, preflight: PipelineTask) -> None:
    """Give a step what it needs on a cluster; `name` is that of its component."""
    if name in TRAINING:
        _equip_training(step, training, preflight.outputs[TRAINING[name]] if TRAINING[name] else training.gpus)
    else:
        _equip_data(step, NEEDS[name])
    _connect(step, name)
    _secure(step, name)
    # KFP's own cache is off: our keys find finished work, and a cache hit could be the URI of a deleted artifact
    step.set_caching_options(False)
    if name == "preflight":  # it should fail at once
        kubernetes.set_timeout(step, 900)
    else:
        # without a maximum, KFP stops retrying an hour after the first start, however long an attempt takes
        tries = 5 if name in LONG else 2  # for lost pods and lack of memory: steps retry requests to servers themselves
        step.set_retry(tries, backoff_duration="20s", backoff_factor=2.0, backoff_max_duration=f"{WEEK}s")
        kubernetes.set_timeout(step, WEEK if name in LONG else DAY)


def _equip_data(step: PipelineTask, needs: Needs) -> None:
    step.set_cpu_request(needs.cpu).set_cpu_limit(needs.cpu_limit)
    step.set_memory_request(needs.memory).set_memory_limit(needs.memory_limit)
    kubernetes.empty_dir_mount(step, "scratch", "/tmp", size_limit=needs.scratch)


def _equip_training(step: PipelineTask, pods: Pods, gpus: Any) -> None:
    step.register_pipeline_channels([*vars(pods).values(), gpus])  # otherwise kfp does not pass them into the loop
    step.set_cpu_request(LEAST["cpu"]).set_cpu_limit(pods.cpu)
    step.set_memory_request(LEAST["memory"]).set_memory_limit(pods.memory)
    step.set_accelerator_type(pods.gpu_type).set_accelerator_limit(gpus)
    kubernetes.add_node_selector_json(step, pods.node_selector)
    kubernetes.add_toleration_json(step, pods.tolerations)
    kubernetes.empty_dir_mount(step, "scratch", "/tmp", size_limit=SCRATCH)
    kubernetes.empty_dir_mount(step, "shared-memory", "/dev/shm", medium="Memory", size_limit=SHARED_MEMORY)


def _connect(step: PipelineTask, name: str) -> None:
    """Set addresses from a ConfigMap, keys from secrets; each may be missing (workload identity, embedded engine)."""
    kubernetes.use_config_map_as_env(step, CONFIG_MAP, {key: key for key in ADDRESSES}, optional=True)
    kubernetes.use_secret_as_env(step, S3_SECRET, {key: key for key in S3_KEYS}, optional=True)
    if secret := ELASTICSEARCH_SECRETS.get(name):
        kubernetes.use_secret_as_volume(step, secret, ELASTICSEARCH_FOLDER, optional=True)
    if name in ("preflight", "register"):
        kubernetes.use_secret_as_volume(step, REGISTRY_SECRET, REGISTRY_FOLDER, optional=True)


def _secure(step: PipelineTask, name: str) -> None:
    kubernetes.set_security_context(step, run_as_user=USER, run_as_group=USER, run_as_non_root=True)
    kubernetes.add_pod_label(step, "app.kubernetes.io/name", "tlm")
    kubernetes.add_pod_label(step, "app.kubernetes.io/component", name)
