"""The steps that pipelines share, wired together, and the resources of each on a cluster, which local runs ignore."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from docstring_parser import parse
from kfp import dsl, kubernetes
from kfp.dsl import PipelineTask
from kfp.dsl.pipeline_context import Pipeline

from components import data, training
from pipelines.form import ONE_OF_EACH, Corpus, Parallelism, Registry, Task
from tlm.cli.command import descriptions, flat
from tlm.runs.pods import CONFIG_MAP, DATA_LIMITS, LEAST, S3_ADDRESSES, S3_KEYS, S3_SECRET, SCRATCH, SHARED_MEMORY, USER
from tlm.settings.options import Pods, Prices


def pipeline(
    name: str, display_name: str, about: str = "", kinds: Mapping[str, type] = {}, **given: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a function into one that returns the pipeline for a number of machines.

    The arguments of the function are `machines`, those in `given`, groups of parameters (of other `kinds`, see `flat`),
    and single parameters. What it does is said by `about`, or else by its docstring.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def build(machines: Parallelism = ONE_OF_EACH) -> Any:
            steps = flat(function, form=True, kinds=kinds, machines=machines, **given)
            several = [f"{count} {what.replace('_', ' ')}" for what, count in vars(machines).items() if count > 1]
            suffix = "".join(f"-{words.replace(' ', '-')}" for words in several)
            shown = f"{display_name} on {' and '.join(several)}" if several else display_name
            # no pipeline_config: KFP 2.16 does not know its fields, and then ignores limits and secrets, too
            made = dsl.pipeline(name=name + suffix, display_name=shown, description=_description(steps, about))(steps)
            # a pod requests as many GPUs as its step is told to use; kfp cannot compile a field of a loop's item here
            for executor in made.pipeline_spec.deployment_spec["executors"].values():
                resources = executor["container"]["resources"]
                if "accelerator" in resources:
                    resources["accelerator"]["resourceCount"] = "{{$.inputs.parameters['gpus']}}"
            return made

        return build

    return decorate


def _description(steps: Callable[..., Any], about: str) -> str:
    """What the pipeline does, and what its parameters mean: the form in the UI shows only their names."""
    summary = about or parse(steps.__doc__ or "").short_description or ""
    lines = [f"- `{parameter}`: {meaning}" for parameter, meaning in descriptions(steps).items()]
    return "\n".join([summary, "", "Parameters:", "", *lines])


def load(preflight: Any, files: Corpus, task: Task, machines: Parallelism, root: Any) -> tuple[Any, Any]:
    """Return the URIs of corpus and task, read after the preflight.

    The task comes first: it takes seconds, and an error in it should show before hours go into corpus and index.
    """
    task_step = data.load_task(**vars(task), root=root).after(preflight)
    return corpus(task_step, files, machines, root), task_step.outputs["Output"]


def corpus(after: Any, files: Corpus, machines: Parallelism, root: Any) -> Any:
    """Return the URI of the corpus, loaded after another step by one pod or several."""
    if machines.data_pods == 1:
        return data.load_corpus(**vars(files), root=root).after(after).outputs["Output"]
    planned = data.plan_corpus(**vars(files), pods=machines.data_pods, root=root).after(after)
    with dsl.ParallelFor(planned.output, name="corpus-parts") as pod:
        staged = data.stage_corpus(pod=pod)
    compared = data.dedup_corpus(pods=dsl.Collected(staged.output))
    with dsl.ParallelFor(compared.output, name="corpus-shards") as pod:
        written = data.write_corpus(pod=pod)
    return data.publish_corpus(pods=dsl.Collected(written.output)).outputs["Output"]


def tokenizer(preflight: Any, corpus: Any, task: Any, root: Any) -> Any:
    """Return the URI of the tokenizer that all runs share."""
    kind, size = preflight.outputs["tokenizer_kind"], preflight.outputs["vocab_size"]
    return data.tokenizer(corpus=corpus, task=task, kind=kind, vocab_size=size, root=root).output


def report(scores: dict[str, Any], train: Pods, prices: Prices, registry: Registry, root: Any, **more: Any) -> Any:
    """Return the URI of the report on some metrics; the model it names is registered, if there is a registry."""
    made = data.report(**scores, **vars(prices), root=root, **more).outputs["Output"]
    run = {"run": dsl.PIPELINE_JOB_ID_PLACEHOLDER, "run_name": dsl.PIPELINE_JOB_NAME_PLACEHOLDER}
    with dsl.If(registry.address != "", name="registry"):
        data.register(report=made, **vars(registry), **run)
    equip_all(train)
    return made


def scored(plan: Any, train: Pods, machines: Parallelism, root: Any) -> dsl.Collected:
    """Return the URIs of the metrics of all runs of `plan`, whose items are those of `tlm.runs.plan.on_pods`."""
    # inside the loop only the item and parameters are used: kfp.local mistakes other steps' outputs for the item
    with dsl.ParallelFor(plan, name="arms-and-seeds") as item:
        run = item.run
        if machines.nodes == 1:
            checkpoint = training.train(run=run, gpus=item.train, root=root).outputs["Output"]
        else:
            checkpoint = training.train_on_nodes(run=run, nodes=machines.nodes, **vars(train), root=root).output
        model = training.finetune(checkpoint=checkpoint, run=run, gpus=item.finetune, root=root).outputs["Output"]
        metrics = training.evaluate(model=model, run=run, gpus=item.evaluate, root=root).outputs["Output"]
    return dsl.Collected(metrics)


def equip_all(train: Pods) -> None:
    """Give every step of the pipeline what it needs on a cluster."""
    for step in Pipeline.get_default_pipeline().tasks.values():
        equip(step, step.component_spec.name, train)


DAY = 86_400  # seconds
WEEK = 7 * DAY

ADDRESSES = ("TLM_ELASTICSEARCH_URL", "HF_ENDPOINT", *S3_ADDRESSES)
ELASTICSEARCH_FOLDER = "/etc/tlm/elasticsearch"  # the images' TLM_ELASTICSEARCH_SECRET
READER = "tlm-elasticsearch-reader"
ELASTICSEARCH_SECRETS = (  # only steps that fill an index can write to it
    dict.fromkeys(("preflight", "index"), "tlm-elasticsearch-writer")
    | dict.fromkeys(("retrieve", "select", "rerank", "subsets", "task-subsets"), READER)
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
NEEDS = (  # all other steps that do not train are LARGE
    dict.fromkeys(("preflight", "plan-apart", "register", "no-embeddings"), SMALL)
    | dict.fromkeys(("load-task", "load-tasks", "advise", "baseline", "mix", "report", "report-tasks"), MEDIUM)
    | dict.fromkeys(("train-on-nodes", "publish-corpus"), MEDIUM)  # the former starts pods, and may load a model
)
TRAINING = ("train", "train-multitask", "finetune", "evaluate", "rerank", "predict")  # those with the input `gpus`
LONG = (*TRAINING, "train-on-nodes")


def equip(step: PipelineTask, name: str, training: Pods) -> None:
    """Give a step what it needs on a cluster; `name` is that of its component."""
    if name in TRAINING:
        _equip_training(step, training)
    else:
        _limit(step, NEEDS.get(name, LARGE))
    _connect(step, name)
    _secure(step, name)
    # KFP's own cache is off: our keys find finished work, and a cache hit could be the URI of a deleted artifact
    step.set_caching_options(False)
    if name == "preflight":  # it should fail at once
        kubernetes.set_timeout(step, 900)
    else:
        # Further tries are for lost pods and lack of memory: steps retry requests to servers themselves. `predict` has
        # fewer, because a file that it cannot read fails each time, and the next run goes on where this one ended.
        tries = 5 if name in LONG and name != "predict" else 2
        # without a maximum, KFP stops retrying an hour after the first start, however long an attempt takes
        step.set_retry(tries, backoff_duration="20s", backoff_factor=2.0, backoff_max_duration=f"{WEEK}s")
        kubernetes.set_timeout(step, WEEK if name in LONG else DAY)


def _limit(step: PipelineTask, needs: Needs) -> None:
    step.set_cpu_request(needs.cpu).set_cpu_limit(needs.cpu_limit)
    step.set_memory_request(needs.memory).set_memory_limit(needs.memory_limit)
    kubernetes.empty_dir_mount(step, "scratch", "/tmp", size_limit=needs.scratch)


def _equip_training(step: PipelineTask, pods: Pods) -> None:
    step.register_pipeline_channels([*vars(pods).values()])  # otherwise kfp does not pass them into the loop
    _limit(step, Needs(LEAST["cpu"], pods.cpu, LEAST["memory"], pods.memory, SCRATCH))
    step.set_accelerator_type(pods.gpu_type).set_accelerator_limit(pods.gpus)
    kubernetes.add_node_selector_json(step, pods.node_selector)
    kubernetes.add_toleration_json(step, pods.tolerations)
    kubernetes.empty_dir_mount(step, "shared-memory", "/dev/shm", medium="Memory", size_limit=SHARED_MEMORY)


def _connect(step: PipelineTask, name: str) -> None:
    """Set addresses from a ConfigMap, keys from secrets; each may be missing (workload identity, embedded engine)."""
    kubernetes.use_config_map_as_env(step, CONFIG_MAP, {key: key for key in ADDRESSES}, optional=True)
    kubernetes.use_secret_as_env(step, S3_SECRET, {key: key for key in S3_KEYS}, optional=True)
    if secret := ELASTICSEARCH_SECRETS.get(name):
        kubernetes.use_secret_as_volume(step, secret, ELASTICSEARCH_FOLDER, optional=True)
    if name == "preflight":  # it checks the key of the steps that search, too
        kubernetes.use_secret_as_volume(step, READER, f"{ELASTICSEARCH_FOLDER}-reader", optional=True)
    if name in ("preflight", "register"):
        kubernetes.use_secret_as_volume(step, REGISTRY_SECRET, REGISTRY_FOLDER, optional=True)


def _secure(step: PipelineTask, name: str) -> None:
    kubernetes.set_security_context(step, run_as_user=USER, run_as_group=USER, run_as_non_root=True)
    kubernetes.add_pod_label(step, "app.kubernetes.io/name", "tlm")
    kubernetes.add_pod_label(step, "app.kubernetes.io/component", name)
