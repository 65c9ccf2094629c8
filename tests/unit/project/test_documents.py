"""The documents name what exists: commands with their options, files, and the places that links lead to."""

import importlib.util
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import typer

from pipelines.compiled import of_this_code, read_parameters
from pipelines.run import app
from research.__main__ import STUDIES
from research.multitask import report as multitask
from tests import commands_page
from tlm.artifacts.stores.store import KINDS
from tlm.cli.main import COMMANDS, build
from tlm.data.tasks import task
from tlm.evaluation.report import report
from tlm.evaluation.score import baseline, imported, mix
from tlm.retrieval.search import index
from tlm.retrieval.subset import export
from tlm.runs import advise
from tlm.serving import distill, export_onnx
from tlm.training import stages
from tlm.training.input import tokenizer

HOME = Path(__file__).parents[3]
HISTORY = (
    "CHANGELOG.md",
    "research/LOG.md",
    "research/RESULTS.md",
    "research/BENCHMARKS.md",
)  # these may name what has been removed since
DOCUMENTS = [
    path
    for path in sorted(
        [
            *HOME.glob("*.md"),
            *(path for folder in ("docs", "k8s", "research") for path in HOME.glob(f"{folder}/**/*.md")),
        ]
    )
    if path.relative_to(HOME).as_posix() not in HISTORY
]
FOLDERS = ("tlm", "components", "pipelines", "tests", "docs", "k8s", "research", "demo", "docker", ".github", ".ci")
TLM, RUN, RESEARCH = "tlm", "python -m pipelines.run", "python -m research"
NAMES = {
    TLM: [*COMMANDS],
    RUN: [str(one.callback.__name__) for one in app.registered_commands if one.callback],
    RESEARCH: [*STUDIES],
}
# A command stands at the start of a line or span, or after a shell operator.
START = r"(?:^|[|;&(]\s*)(?:export \S+ |\S*/bin/)?"
CALL = re.compile(START + r"(tlm|python -m pipelines\.run|python -m research) ([a-z][a-z-]*)", re.MULTILINE)
MAKE = re.compile(START + r"make ([a-z][a-z-]*)", re.MULTILINE)
MODULE = re.compile(r"python -m ([a-z][\w.]*)")
OPTION = re.compile(r"(?<!\S)(--[a-z][a-z0-9-]*)")

documents = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(HOME)))


def code(text: str) -> Iterator[str]:
    """The lines of code blocks, continued lines joined and comments dropped, and the code spans."""
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from re.sub(r"\s+#\s.*", "", re.sub(r"\\\n\s*", "", block)).splitlines()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", prose)


@lru_cache
def options(program: str, command: str) -> set[str]:
    """The options of a command, as its help lists them."""
    one = app if program == RUN else build([command], STUDIES if program == RESEARCH else COMMANDS)
    commands: dict[str, Any] = vars(typer.main.get_command(one))["commands"]
    assert command in commands, f"`{program} {command}` does not exist"
    return {"--help", *(name for param in commands[command].params for name in (*param.opts, *param.secondary_opts))}


@pytest.mark.parametrize("name", commands_page.TABLES)
def test_the_tables_of_commands_and_parameters_are_those_of_the_code(name: str) -> None:
    page = (commands_page.DOCS / name).read_text(encoding="utf-8")
    assert commands_page.page(name) == page, f"docs/{name} is out of date: run make generated"


def test_every_command_is_in_the_table() -> None:
    page = (commands_page.DOCS / "commands.md").read_text(encoding="utf-8")
    everything = sorted((program, name) for program in (TLM, RUN) for name in NAMES[program])
    assert sorted(re.findall(r"^\| `(tlm|python -m pipelines\.run) ([a-z-]+)` \|", page, re.MULTILINE)) == everything


def test_each_command_has_an_example() -> None:
    pages = [(HOME / name).read_text(encoding="utf-8") for name in ("docs/commands.md", "research/README.md")]
    examples = "".join(re.findall(r"^```[^\n]*\n(.*?)^```", "\n".join(pages), re.MULTILINE | re.DOTALL))
    everything = {(program, name) for program, names in NAMES.items() for name in names}
    told = "give an example of each in docs/commands.md, of a study in research/README.md"
    assert set(CALL.findall(examples)) == everything, told


def test_the_diagram_names_commands_and_what_they_make() -> None:
    page = (commands_page.DOCS / "commands.md").read_text(encoding="utf-8")
    (drawn,) = re.findall(r"^```mermaid\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = dict(re.findall(r'\["<b>([a-z-]+)</b><br>(\w+)"\]', drawn))
    assert len(found) == drawn.count("<b>")
    assert set(found) <= set(NAMES[TLM])
    assert set(found.values()) <= {*KINDS}


def test_the_parameters_of_readme_are_those_of_the_pipelines(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```", (HOME / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "my.yaml").write_text(example, encoding="utf-8")
    for pipeline in ("tlm", "shallow"):
        assert len(read_parameters(tmp_path / "my.yaml", [], of_this_code(pipeline))) == 10


@documents
def test_commands_and_options_exist(path: Path) -> None:
    for line in code(path.read_text(encoding="utf-8")):
        for part in re.split(r"\s&&\s|\s\|\s|;", line):
            calls = CALL.findall(part)
            if calls:
                known = set().union(*(options(*call) for call in calls))
                assert set(OPTION.findall(part)) <= known, f"{path.name}: {part}"


@documents
def test_options_in_a_span_of_their_own_exist(path: Path) -> None:
    known = set().union(*(options(program, name) for program, names in NAMES.items() for name in names))
    spans = (line for line in code(path.read_text(encoding="utf-8")) if line.startswith("--"))
    assert {option for span in spans for option in OPTION.findall(span)} <= known


@documents
def test_make_targets_and_modules_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (HOME / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in code(path.read_text(encoding="utf-8")):
        assert set(MAKE.findall(line)) <= targets, f"{path.name}: {line}"
        for name in MODULE.findall(line):
            assert importlib.util.find_spec(name), f"{path.name}: {line}"


def test_the_changelog_has_the_versions_of_the_steps() -> None:
    """Whoever raises one of these is told here of the line, which says what finished work is made again."""
    static = baseline.VERSIONS[baseline.STATIC]
    assert static == baseline.VERSIONS[baseline.EMBEDDINGS], "name both versions apart in CHANGELOG.md and below"
    assert export.VERSION == export.OF_IMPORT, "name both versions apart in CHANGELOG.md and below"
    line = (
        f"index v{index.VERSION} (with vectors v{index.WITH_VECTORS}) and tokenizer v{tokenizer.VERSION}; "
        f"`load-task` v{task.VERSION}, `export` and `import-subset` v{export.VERSION}; "
        f"`baseline` v{baseline.VERSIONS[baseline.ARM]}, static vectors and embeddings v{static}, "
        f"`mix` v{mix.VERSION} (cascades v{mix.VERSION_OF_CASCADES}); `import-predictions` v{imported.VERSION}; "
        f"`finetune` v{stages.STAGE2_VERSION}, `distill` v{distill.VERSION}, `export-onnx` v{export_onnx.VERSION}; "
        f"`tune` v{advise.VERSION}; reports v{report.VERSION}, `report-multitask` v{multitask.VERSION}."
    )
    told = f"the line 'Steps that run once more' of CHANGELOG.md has other versions; it should end so: {line}"
    assert line in (HOME / "CHANGELOG.md").read_text(encoding="utf-8"), told


@documents
def test_files_of_the_repository_exist(path: Path) -> None:
    for span in code(path.read_text(encoding="utf-8")):
        if re.fullmatch(r"[\w.-]+(/[\w.*-]+)+/?", span) and span.split("/")[0] in FOLDERS:
            name = span.rstrip("/")
            assert [*HOME.glob(name), *path.parent.glob(name)], f"{path.name}: `{span}` does not exist"


def anchors(path: Path) -> set[str]:
    """The places in a document that a link can lead to, by GitHub's rules for headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@documents
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name) if name else path
        assert linked.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{path.name} links to {target}"
