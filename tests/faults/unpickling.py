"""Where code could come in with data: in sources that read it, and in files that carry it."""

import ast
import gzip
import io
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tlm.data.reading import zstd

MODULES = {"pickle", "_pickle", "cloudpickle", "joblib", "dill", "shelve", "marshal", "jsonpickle"}
HARMLESS_IMPORTS = {
    ("joblib", "cpu_count"),
    *(("joblib", name) for name in ("Parallel", "delayed")),  # what our own processes tell each other, by pipes
    ("joblib.externals.loky.process_executor", "TerminatedWorkerError"),
}
BUILTINS = {"eval", "exec", "__import__"}
METHODS = {
    *("read_pickle", "to_pickle", "all_gather_object", "gather_object", "scatter_object_list"),
    *("broadcast_object_list", "unsafe_load", "full_load", "unsafe_load_all", "full_load_all"),
}
LOADING = {("torch", "load"), ("torch", "save"), ("yaml", "load"), ("yaml", "load_all"), ("os", "system")}
FLAGS = {"allow_pickle": False, "weights_only": True, "trust_remote_code": False, "shell": False}
HARMLESS = "_LOADER"  # beside which the module says that it is yaml's safe one, in C where there is one
SAFE_LOADER = '_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)'
UNPACKED = 64 << 20


def faults(source: str) -> list[str]:
    """What in Python source could run what data says; each with its line."""
    tree = ast.parse(source)
    found = [found for node in ast.walk(tree) for found in _of_node(node, source)]
    return [f"line {getattr(node, 'lineno', 0)}: {what}" for node, what in found]


def _of_node(node: ast.AST, source: str) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        harmless = {(getattr(node, "module", None), alias.name) for alias in node.names} <= HARMLESS_IMPORTS
        yield from ((node, name) for name in names if name.split(".")[0] in MODULES and not harmless)
    elif isinstance(node, ast.keyword) and node.arg in FLAGS:
        if not (isinstance(node.value, ast.Constant) and node.value.value is FLAGS[node.arg]):
            yield node, node.arg
    elif isinstance(node, ast.Call):
        yield from ((node, what) for what in _of_call(node, source))


def _of_call(call: ast.Call, source: str) -> Iterator[str]:
    if isinstance(call.func, ast.Name) and call.func.id in BUILTINS:
        yield call.func.id
    if not isinstance(call.func, ast.Attribute):
        return
    name = call.func.attr
    owner = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    second = call.args[1] if len(call.args) > 1 else None
    safe = isinstance(second, ast.Name) and second.id == HARMLESS and SAFE_LOADER in source
    if name in METHODS or ((owner, name) in LOADING and not safe):
        yield f"{owner}.{name}"
    here = any(one.arg is None and isinstance(one.value, ast.Name) and one.value.id == "HERE" for one in call.keywords)
    if name == "from_pretrained" and not here:
        yield f"{owner}.from_pretrained without HERE"


def pickled(path: Path) -> bool:
    """Whether a file is a pickle, or has one in it: in a zip, packed, or as an array of objects."""
    return _pickled(path.read_bytes())


def _pickled(data: bytes) -> bool:
    if data.startswith(b"\x93NUMPY") and b"|O" in data[:256]:
        return True
    if data.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return _pickled(_unpacked(data))
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            return any(_pickled(packed.read(name)) for name in packed.namelist())
    return _is_pickle(data)


def _unpacked(data: bytes) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=io.BytesIO(data)).read(UNPACKED)
    with zstd.ZstdFile(io.BytesIO(data)) as stream:
        return bytes(stream.read(UNPACKED))


def _is_pickle(data: bytes) -> bool:
    """Of any protocol: 2 and later say so, 0 and 1 read from their first byte to a stop at their last."""
    if re.match(rb"\x80[\x02-\x05]", data):
        return True
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes in what is no text
            return [place for operation, _, place in pickletools.genops(data)][-1] == len(data) - 1
    except Exception:  # what is no pickle ends in any of many ways
        return False
