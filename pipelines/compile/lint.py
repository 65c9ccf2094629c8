"""What a cluster's operators would object to in a compiled pipeline, each with what to do about it."""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pipelines.compile.compiled import Compiled
from pipelines.compile.images import reference_fault

_INSTALLS = re.compile(r"\b(pip[\d.]*|uv|conda|mamba|apt|apt-get|apk|dnf|yum|npm)\s+(-\S+\s+)*(install|add|sync)\b")
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|secrets|token|credential|credentials|(api|access|private|secret)_?keys?)(_|$)"
)
_KFP_LONGEST = "3600s"  # what kfp writes when nothing is asked for


class Finding(NamedTuple):
    """One fault: at which step (or parameter), what it is, what to do."""

    step: str
    what: str
    remedy: str

    def line(self, file: object) -> str:
        """As it is printed."""
        return f"{file}: {self.step}: {self.what}: {self.remedy}"


def lint(pipeline: Compiled) -> list[Finding]:
    """All faults, ordered by rule, then by step."""
    return [finding for rule in _RULES for finding in sorted(rule(pipeline))]


def _containers(pipeline: Compiled) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(step, executor, container) of every step that runs in a pod."""
    components = pipeline.spec.get("components", {})
    names: dict[str, str] = {}
    for name, task in pipeline.tasks():
        component = components.get(task.get("componentRef", {}).get("name"), {})
        names.setdefault(component.get("executorLabel", ""), name)
    for executor, body in pipeline.spec.get("deploymentSpec", {}).get("executors", {}).items():
        if "container" in body:
            yield names.get(executor, executor), executor, body["container"]


def _installs(pipeline: Compiled) -> Iterator[Finding]:
    for step, _, container in _containers(pipeline):
        code = "\n".join(map(str, (*container.get("command", []), *container.get("args", []))))
        if _INSTALLS.search(code):
            remedy = "put them into the image, and say install_kfp_package=False"
            yield Finding(step, "installs packages when it runs", remedy)


def _images(pipeline: Compiled) -> Iterator[Finding]:
    for step, _, container in _containers(pipeline):
        if fault := reference_fault(container.get("image")):
            said, _, remedy = fault.partition("; ")
            yield Finding(step, f"image {said}", remedy)


def _limits(pipeline: Compiled) -> Iterator[Finding]:
    for step, _, container in _containers(pipeline):
        resources = container.get("resources", {})
        for kind, name in (("cpu", "Cpu"), ("memory", "Memory")):
            if not (resources.get(f"resource{name}Limit") or resources.get(f"{kind}Limit")):
                yield Finding(step, f"has no {kind} limit", f"call set_{kind}_limit on the task")


def _root(pipeline: Compiled) -> Iterator[Finding]:
    platform = pipeline.platform.get("platforms", {}).get("kubernetes", {})
    executors = platform.get("deploymentSpec", {}).get("executors", {})
    for step, executor, _ in _containers(pipeline):
        context = executors.get(executor, {}).get("securityContext", {})
        if context.get("runAsNonRoot") is not True or str(context.get("runAsUser", "")) == "0":
            yield Finding(step, "may run as root", "call kubernetes.set_security_context(task, run_as_non_root=True)")


def _plain_secrets(pipeline: Compiled) -> Iterator[Finding]:
    for step, _, container in _containers(pipeline):
        for variable in container.get("env", []):
            if _SECRET.search(variable["name"].lower()) and variable.get("value"):
                what = f"holds the secret {variable['name']} in plain text"
                yield Finding(step, what, "call kubernetes.use_secret_as_env instead")


def _parameters(pipeline: Compiled) -> Iterator[Finding]:
    inputs = pipeline.spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    for name, entry in inputs.items():
        if _SECRET.search(name.lower()):
            yield Finding(
                f"parameter '{name}'",
                "looks like a secret, and parameters are shown to everybody",
                "read it from a Kubernetes secret",
            )
        if entry.get("defaultValue") is None:
            yield Finding(
                f"parameter '{name}'", "has no default, or None", "give it one, else the form in the UI cannot be sent"
            )


def _caching(pipeline: Compiled) -> Iterator[Finding]:
    for name, task in pipeline.tasks():
        if task.get("cachingOptions", {}).get("enableCache"):
            what = "is cached by Kubeflow, which may return artifacts that are gone"
            yield Finding(name, what, "call set_caching_options(False)")


def _exit_handlers(pipeline: Compiled) -> Iterator[Finding]:
    for name, task in pipeline.tasks():
        if str(task.get("componentRef", {}).get("name", "")).startswith("comp-exit-handler-"):
            yield Finding(name, "is an ExitHandler, which hides the graph in the UI", "take the steps out of it")


def _retries(pipeline: Compiled) -> Iterator[Finding]:
    for name, task in pipeline.tasks():
        policy = task.get("retryPolicy", {})
        if policy.get("maxRetryCount") and policy.get("backoffMaxDuration", _KFP_LONGEST) == _KFP_LONGEST:
            yield Finding(
                name, "is not retried later than an hour after its first start", "give set_retry a backoff_max_duration"
            )


_RULES: tuple[Callable[[Compiled], Iterator[Finding]], ...] = (
    _installs,
    _images,
    _limits,
    _root,
    _parameters,
    _plain_secrets,
    _caching,
    _exit_handlers,
    _retries,
)
