"""Find what the operators of a cluster would object to in a compiled pipeline, and say what to do about it."""

import re
from collections.abc import Iterator
from typing import Any

from pipelines.compile.compiled import Compiled
from pipelines.compile.images import reference_fault

_INSTALLS = re.compile(r"\b(pip[\d.]*|uv|conda|mamba|apt|apt-get|apk|dnf|yum|npm)\s+(-\S+\s+)*(install|add|sync)\b")
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|secrets|token|credential|credentials|(api|access|private|secret)_?keys?)(_|$)"
)
_KNOWN_TO_ALL = {"workspace"}  # settings of a pipeline that KFP 2.16 and 2.17 know
_KFP_LONGEST = "3600s"  # what kfp writes when nothing is asked for


def lint(pipeline: Compiled) -> list[str]:
    """Return all faults, sorted by step: ``step (or parameter): what is wrong: what to do``."""
    return sorted([*_in_containers(pipeline), *_in_parameters(pipeline), *_in_tasks(pipeline), *_in_all(pipeline)])


def _in_all(pipeline: Compiled) -> Iterator[str]:
    settings = pipeline.platform.get("platforms", {}).get("kubernetes", {}).get("pipelineConfig", {})
    if unknown := sorted(settings.keys() - _KNOWN_TO_ALL):
        what = f"has {', '.join(unknown)}, for which KFP 2.16 ignores all limits and secrets without a word"
        yield f"the pipeline: {what}: leave pipeline_config out, and set a time to live in Argo's workflowDefaults"


def _in_containers(pipeline: Compiled) -> Iterator[str]:
    steps = {executor: name for name, executor in pipeline.steps().items()}
    kubernetes = pipeline.platform.get("platforms", {}).get("kubernetes", {})
    settings = kubernetes.get("deploymentSpec", {}).get("executors", {})
    for executor, body in pipeline.spec.get("deploymentSpec", {}).get("executors", {}).items():
        if "container" in body:
            context = settings.get(executor, {}).get("securityContext", {})
            for fault in _in_container(body["container"], context):
                yield f"{steps.get(executor, executor)}: {fault}"


def _in_container(container: dict[str, Any], context: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the container of a step and its security context, and what to do about it."""
    if _INSTALLS.search("\n".join(map(str, (*container.get("command", []), *container.get("args", []))))):
        yield "installs packages when it runs: put them into the image, and say install_kfp_package=False"
    if fault := reference_fault(container.get("image")):
        yield f"image {fault.replace('; ', ': ', 1)}"
    resources = container.get("resources", {})
    for kind, name in (("cpu", "Cpu"), ("memory", "Memory")):
        if not (resources.get(f"resource{name}Limit") or resources.get(f"{kind}Limit")):
            yield f"has no {kind} limit: call set_{kind}_limit on the task"
    if context.get("runAsNonRoot") is not True or str(context.get("runAsUser", "")) == "0":
        yield "may run as root: call kubernetes.set_security_context(task, run_as_non_root=True)"
    for variable in container.get("env", []):
        if _SECRET.search(variable["name"].lower()) and variable.get("value"):
            yield f"holds the secret {variable['name']} in plain text: call kubernetes.use_secret_as_env instead"


def _in_parameters(pipeline: Compiled) -> Iterator[str]:
    for name, entry in pipeline.spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {}).items():
        if _SECRET.search(name.lower()):
            what = "looks like a secret, and parameters are shown to everybody"
            yield f"parameter '{name}': {what}: read it from a Kubernetes secret"
        if entry.get("defaultValue") is None:
            remedy = "give it one, else the form in the UI cannot be sent"
            yield f"parameter '{name}': has no default, or None: {remedy}"


def _in_tasks(pipeline: Compiled) -> Iterator[str]:
    for name, task in pipeline.tasks():
        if task.get("cachingOptions", {}).get("enableCache"):
            what = "is cached by Kubeflow, which may return artifacts that are gone"
            yield f"{name}: {what}: call set_caching_options(False)"
        if str(task.get("componentRef", {}).get("name", "")).startswith("comp-exit-handler-"):
            yield f"{name}: is an ExitHandler, which hides the graph in the UI: take the steps out of it"
        policy = task.get("retryPolicy", {})
        if policy.get("maxRetryCount") and policy.get("backoffMaxDuration", _KFP_LONGEST) == _KFP_LONGEST:
            what = "is not retried later than an hour after its first start"
            yield f"{name}: {what}: give set_retry a backoff_max_duration"
