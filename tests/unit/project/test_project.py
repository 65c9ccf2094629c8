"""The house stays in order: locks that fit, layers that hold, small files, light imports."""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from research.__main__ import STUDIES
from tests import house
from tlm.cli.main import COMMANDS

HOME = Path(__file__).parents[3]
PRODUCT = ("tlm", "components", "pipelines")
OURS = (*PRODUCT, "research", "demo")
CODE = [path for part in OURS for path in sorted((HOME / part).rglob("*.py"))]
# Each may import those before it and none behind it.
FLOORS = (
    *("errors", "progress", "settings", "artifacts", "data", "shallow", "retrieval", "training"),
    *("evaluation", "serving", "runs", "cli"),
)
# Which parts, and kfp, each part may import.
ALLOWED = {
    "tlm": {"tlm"},
    "components": {"tlm", "components", "kfp"},
    "pipelines": {"tlm", "components", "pipelines", "kfp"},
    "research": {"tlm", "components", "pipelines", "research", "demo", "kfp"},
    "demo": {"tlm", "demo"},
}
TEXTS = (".py", ".j2", ".css", ".html")
MOST_IN_FILE, MOST_IN_COMPONENT, MOST_ENTRIES, LEAST_ENTRIES = 500, 7, 12, 3
HEAVY = ("torch", "transformers", "datasets", "sklearn", "elasticsearch", "boto3", "matplotlib", "kfp")
INSIDE = "import these packages inside the functions that need them, or in a module that only those import"

# What comes with, and moves with, a package that is declared.
PART_OF = {
    "backports": "backports.zstd",
    "compression": "backports.zstd",  # the same in the library of Python 3.14
    "botocore": "boto3",
    "cyclonedx": "cyclonedx-python-lib",
    "elastic_transport": "elasticsearch",
    "google": "kfp",  # google.protobuf
    "huggingface_hub": "datasets",
    "joblib": "scikit-learn",
    "mlflow": "mlflow-skinny",
    "kfp_server_api": "kfp",
    "pydantic_core": "pydantic",
    "threadpoolctl": "scikit-learn",
    "urllib3": "kfp",
}

# ---- the locks


def pins(lock: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package in a lock."""
    blocks = re.findall(r"^([a-z0-9-]+)==([^ ]+).*((?:\n +--hash=.*)*)", (HOME / lock).read_text(), re.MULTILINE)
    return {name: (version, hashes.count("--hash=sha256:")) for name, version, hashes in blocks}


def declared(*extras: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    for text in [
        *project["dependencies"],
        *(text for extra in extras for text in project["optional-dependencies"][extra]),
    ]:
        yield Requirement(text)


LOCKS = {
    "requirements.txt": ("train", "pipelines", "dev"),
    "requirements-light.txt": ("pipelines", "serve"),
    "requirements-data.txt": (),
    "requirements-train.txt": ("train", "embeddings"),
    "requirements-serve.txt": ("serve",),
    "docker/requirements-sbom.txt": None,
}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_one_version_and_hashes(lock):
    text, locked = (HOME / lock).read_text(), pins(lock)
    assert len(locked) > 20
    assert len(locked) == len(re.findall(r"^\S.*==", text, re.MULTILINE))
    assert [name for name, (_, hashes) in locked.items() if hashes == 0] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_name_no_host_and_no_place(lock):
    text = (HOME / lock).read_text()
    assert not re.search(r"://|^\s*-[a-z]|--(?!hash=)|@ ", re.sub(r"#   -c requirements\.txt", "", text), re.MULTILINE)


@pytest.mark.parametrize(("lock", "extras"), [item for item in LOCKS.items() if item[1] is not None])
def test_locks_hold_what_the_project_declares(lock, extras):
    locked = pins(lock)
    left_out = (HOME / "docker/not-in-serve.txt").read_text().splitlines() if lock == "requirements-serve.txt" else ()
    for wanted in (one for one in declared(*extras) if one.name not in left_out):
        version, _ = locked.get(canonicalize_name(wanted.name), ("", 0))
        assert version, f"{lock} lacks {wanted.name}, which pyproject.toml declares: run `make lock`"
        assert wanted.specifier.contains(version), f"{wanted} is not met by {version}: run `make lock`"


def test_the_other_locks_are_parts_of_the_whole():
    everything, train, data = pins("requirements.txt"), pins("requirements-train.txt"), pins("requirements-data.txt")
    light = pins("requirements-light.txt")
    assert data.items() <= train.items() <= everything.items()
    assert data.items() <= light.items() <= everything.items()
    assert not {"torch", "transformers", "pytest"} & light.keys()
    assert not {"kfp", "pytest"} & train.keys()
    assert not {"torch", "transformers"} & data.keys()
    assert not [name for name in data if name.startswith("nvidia-")]
    serve = pins("requirements-serve.txt")
    assert serve.items() <= everything.items()
    assert "onnxruntime" in serve
    assert not {"torch", "transformers", "kfp", "pyarrow", "elasticsearch", "onnx"} & serve.keys()


# ---- the code


def imports(path: Path, everywhere: bool) -> Iterator[str]:
    """Names of modules that a file imports: when it is imported, or `everywhere`, inside functions too."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name their module in full here"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module(path: Path) -> str:
    return ".".join(path.relative_to(HOME).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in CODE}


GRAPH = {
    name: {other for other in imports(path, everywhere=True) if other in MODULES and other != name}
    for name, path in MODULES.items()
}


def test_no_modules_import_each_other():
    graphlib.TopologicalSorter(GRAPH).prepare()


def test_no_folders_import_each_other():
    """A cycle of files is caught above; two folders that need each other are one room with a wall in it."""
    arrows = {}
    for name, others in GRAPH.items():
        for other in others:
            if MODULES[other].name != "__init__.py" and MODULES[name].parent != MODULES[other].parent:
                arrows[MODULES[name].parent, MODULES[other].parent] = f"{name} imports {other}"
    told = "move what both folders need to one below them"
    assert [(arrow, arrows[b, a]) for (a, b), arrow in arrows.items() if (b, a) in arrows] == [], told


FOLDERS = sorted({path.parent for path in CODE if path.relative_to(HOME).parts[0] in PRODUCT})
NOT_COUNTED = ("__init__.py", "__main__.py", "__pycache__")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(HOME)))
def test_rooms_are_neither_crowded_nor_empty(folder):
    entries = sorted(path.name for path in folder.iterdir() if path.name not in NOT_COUNTED)
    told = f"{len(entries)} entries, expected {LEAST_ENTRIES} to {MOST_ENTRIES}: move some, or divide it by concern"
    assert LEAST_ENTRIES <= len(entries) <= MOST_ENTRIES, told


def test_every_floor_stands_on_those_below():
    wrong = []
    for name, path in MODULES.items():
        floor = name.split(".")[1:2]
        for other in imports(path, everywhere=True):
            below = other.split(".")[1:2]
            if other in MODULES and name.startswith("tlm.") and below and floor != below:
                assert floor[0] in FLOORS, f"{name} stands on no floor yet: add it to FLOORS"
                if other.startswith("tlm.") and FLOORS.index(below[0]) > FLOORS.index(floor[0]):
                    wrong.append(f"{name} imports {other}")
    assert wrong == [], "these import from a layer above their own in FLOORS: move what they need to a lower one"


def test_each_part_imports_only_what_it_stands_on():
    """`tlm` needs neither kfp nor research; components do not need pipelines."""
    for name, path in MODULES.items():
        ours = {other.split(".")[0] for other in imports(path, everywhere=True)} & {*OURS, "kfp"}
        allowed = ALLOWED[name.split(".")[0]]
        assert ours <= allowed, f"{name} imports {ours - allowed}"


def test_every_package_that_is_imported_is_declared():
    extras = ("train", "pipelines", "hub", "embeddings", "onnx", "serve", "bom", "mlflow")
    declared_names = {canonicalize_name(wanted.name) for wanted in declared(*extras)}
    distributions, undeclared = packages_distributions(), set()
    for path in (path for path in CODE if "benchmarks" not in path.parts):
        packages = {name.split(".")[0] for name in imports(path, everywhere=True)}
        for package in packages - sys.stdlib_module_names - set(OURS):
            names = [PART_OF.get(package, package), *distributions.get(package, [])]
            if not declared_names & {canonicalize_name(name) for name in names}:
                undeclared.add(f"{package} ({path.relative_to(HOME)})")
    assert undeclared == set(), "declare these packages in pyproject.toml, then run `make lock`"


@pytest.mark.parametrize("part", OURS)
def test_files_are_small(part):
    files = [path for path in (HOME / part).rglob("*") if path.suffix in TEXTS]
    lines = {str(path.relative_to(HOME)): len(path.read_text().splitlines()) for path in files}
    assert {name: count for name, count in lines.items() if count > MOST_IN_FILE} == {}, "divide these files by concern"


def test_tests_of_a_part_stand_in_its_folder():
    parts = {path.name for path in (HOME / "tlm").iterdir()} | {"report", "project", "research"}
    assert {path.parent.name for path in (HOME / "tests/unit").rglob("test_*.py")} <= parts


def test_the_product_does_not_grow_unnoticed():
    house.main()
    size, files = house.rooms()
    limits = {"MOST_LINES": (size.total(), house.MOST_LINES), "MOST_FILES": (files.total(), house.MOST_FILES)}
    over = [f"{found - most:,} above {name}" for name, (found, most) in limits.items() if found > most]
    advice = "take out what is no longer used, or raise it and give the reason in the commit"
    assert not over, f"{', '.join(over)} in tests/house.py: {advice}"


def test_components_have_no_logic():
    for path in (HOME / "components").glob("*.py"):
        text = path.read_text()
        for function in ast.parse(text).body:
            if isinstance(function, ast.FunctionDef) and function.decorator_list:
                body = function.body[1:] if ast.get_docstring(function) else function.body
                lines = text.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
                count = len([line for line in lines if line.strip()])
                told = f"{path.name}: {function.name} has {count} lines: move some to the function that it calls"
                assert count <= MOST_IN_COMPONENT, told


def loaded(code: str) -> set[str]:
    """Top-level modules that are loaded after `code` ran in a fresh interpreter."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    output = subprocess.run(command, cwd=HOME, check=True, capture_output=True, text=True, timeout=60).stdout
    return {name.split(".")[0] for name in output.split()}


@pytest.mark.parametrize(
    "code", ["import tlm", "import tlm.cli.main", "import tlm.settings.presets", "import tlm.artifacts.produce"]
)
def test_the_command_line_starts_light(code):
    assert not loaded(code) & {*HEAVY, "numpy", "pyarrow", "scipy"}, INSIDE


def test_the_help_starts_light():
    code = "import contextlib, tlm.cli.main as c\nwith contextlib.suppress(SystemExit): c.build(['--help'])(['--help'])"
    assert not loaded(code) & {*HEAVY, "numpy", "pyarrow", "scipy"}, INSIDE


def test_steps_can_be_looked_at_without_what_they_work_with():
    """Finding a finished artifact, or a step's signature, needs none of the heavy packages."""
    modules = {target.partition(":")[0] for target, _ in (*COMMANDS.values(), *STUDIES.values())}
    assert not loaded("\n".join(f"import {name}" for name in sorted(modules))) & {*HEAVY}, INSIDE
