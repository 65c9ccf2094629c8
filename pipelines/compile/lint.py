"""Find what the operators of a cluster would object to in a compiled pipeline, and say what to do about it."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from pipelines.compile.compiled import Compiled
from pipelines.compile.images import reference_fault

_INSTALLS = re.compile(r"\b(pip[\d.]*|uv|conda|mamba|apt|apt-get|apk|dnf|yum|npm)\s+(-\S+\s+)*(install|add|sync)\b")
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|secrets|token|credential|credentials|(api|access|private|secret)_?keys?)(_|$)"
)
_KFP_LONGEST = "3600s"  # what kfp writes when nothing is asked for


class Finding(NamedTuple):
    """A fault: the step (or parameter) that has it, what it is, and what to do."""

    step: str
    what: str
    remedy: str

    def line(self, file: object) -> str:
        """Return the fault as it is printed."""
        return f"{file}: {self.step}: {self.what}: {self.remedy}"


def lint(pipeline: Compiled) -> list[Finding]:
    """Return all faults, sorted by step."""
    return sorted([*_in_containers(pipeline), *_in_parameters(pipeline), *_in_tasks(pipeline)])


def _in_containers(pipeline: Compiled) -> Iterator[Finding]:
    steps = {executor: name for name, executor in pipeline.steps().items()}
    kubernetes = pipeline.platform.get("platforms", {}).get("kubernetes", {})
    settings = kubernetes.get("deploymentSpec", {}).get("executors", {})
    for executor, body in pipeline.spec.get("deploymentSpec", {}).get("executors", {}).items():
        if "container" in body:
            context = settings.get(executor, {}).get("securityContext", {})
            for what, remedy in _in_container(body["container"], context):
                yield Finding(steps.get(executor, executor), what, remedy)


def _in_container(container: dict[str, Any], context: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the container of a step and its security context, and what to do about it."""
    if _INSTALLS.search("\n".join(map(str, (*container.get("command", []), *container.get("args", []))))):
        yield "installs packages when it runs", "put them into the image, and say install_kfp_package=False"
    if fault := reference_fault(container.get("image")):
        said, _, remedy = fault.partition("; ")
        yield f"image {said}", remedy
    resources = container.get("resources", {})
    for kind, name in (("cpu", "Cpu"), ("memory", "Memory")):
        if not (resources.get(f"resource{name}Limit") or resources.get(f"{kind}Limit")):
            yield f"has no {kind} limit", f"call set_{kind}_limit on the task"
    if context.get("runAsNonRoot") is not True or str(context.get("runAsUser", "")) == "0":
        yield "may run as root", "call kubernetes.set_security_context(task, run_as_non_root=True)"
    for variable in container.get("env", []):
        if _SECRET.search(variable["name"].lower()) and variable.get("value"):
            yield f"holds the secret {variable['name']} in plain text", "call kubernetes.use_secret_as_env instead"


def _in_parameters(pipeline: Compiled) -> Iterator[Finding]:
    for name, entry in pipeline.spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {}).items():
        step = f"parameter '{name}'"
        if _SECRET.search(name.lower()):
            what = "looks like a secret, and parameters are shown to everybody"
            yield Finding(step, what, "read it from a Kubernetes secret")
        if entry.get("defaultValue") is None:
            remedy = "give it one, else the form in the UI cannot be sent"
            yield Finding(step, "has no default, or None", remedy)


def _in_tasks(pipeline: Compiled) -> Iterator[Finding]:
    for name, task in pipeline.tasks():
        if task.get("cachingOptions", {}).get("enableCache"):
            what = "is cached by Kubeflow, which may return artifacts that are gone"
            yield Finding(name, what, "call set_caching_options(False)")
        if str(task.get("componentRef", {}).get("name", "")).startswith("comp-exit-handler-"):
            yield Finding(name, "is an ExitHandler, which hides the graph in the UI", "take the steps out of it")
        policy = task.get("retryPolicy", {})
        if policy.get("maxRetryCount") and policy.get("backoffMaxDuration", _KFP_LONGEST) == _KFP_LONGEST:
            what = "is not retried later than an hour after its first start"
            yield Finding(name, what, "give set_retry a backoff_max_duration")
