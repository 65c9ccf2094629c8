"""What the Dockerfile does, read without Docker."""

import re
from collections.abc import Iterator

from tests.faults.row import HOME

FETCHING = re.compile(r"\b(curl|wget|apt|apt-get|apk|git|conda|npm)\b|^ADD\b|https?://", re.IGNORECASE)
OURS = ("/wheels/", "TORCH_INDEX")  # what we built from this checkout; PyTorch's own build, whose hashes it has not


def faults_of_dockerfile() -> Iterator[str]:
    """For each instruction what is wrong with it, or ''."""
    text = re.sub(r"^\s*#.*\n", "", (HOME / "docker/Dockerfile").read_text(), flags=re.MULTILINE)
    instructions = re.sub(r"\\\n\s*", " ", text).splitlines()
    stages: dict[str, str] = {}  # by name, the user they end as
    stage = ""
    for instruction in filter(None, instructions):
        word, _, rest = instruction.partition(" ")
        if word == "FROM":
            source, _, stage = rest.partition(" AS ")
            stages[stage] = stages.get(source, "")
        elif word == "USER":
            stages[stage] = rest
        yield _fault(word, instruction)
    for image in ("data", "train"):
        yield "" if re.fullmatch(r"[1-9]\d*:[1-9]\d*", stages[image]) else f"{image} runs as {stages[image] or 'root'}"


def _fault(word: str, instruction: str) -> str:
    if FETCHING.search(instruction):
        return f"fetches what no lock names: {instruction}"
    if word == "ARG" and "BASE_IMAGE=" in instruction and not re.search(r":\d+\.\d+\.\d+", instruction):
        return f"names no version: {instruction}"
    if word in ("ENV", "ARG") and re.search(r"(?i)password|token|secret(?!=/etc/tlm)(?!_?ELASTIC)|_key", instruction):
        return "" if "TLM_ELASTICSEARCH_SECRET=/etc" in instruction else f"has a secret in it: {instruction}"
    installs = re.findall(r"pip install (.*?)(?=&&|;|$)", instruction) if word == "RUN" else []
    unsure = [one for one in installs if "--require-hashes" not in one and not any(ours in one for ours in OURS)]
    return f"installs without hashes: {unsure[0]}" if unsure else ""
