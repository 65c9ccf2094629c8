"""The command `gpu-pack`: all that the cases of `gpu` need, in a few small archives to carry to a machine with a GPU.

A machine with a GPU may have neither a network nor time for an index. An archive has the runs of one part, what they
read (tasks, tokenizers, texts as tokens), and the manifests alone of what those were made from.
"""

import lzma
import shutil
import tarfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tlm.artifacts.artifact import MANIFEST, Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.report.lineage import everything
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import TASK_ONLY, export
from tlm.runs.plan import PlannedRun, arm_of, preset_of
from tlm.settings import presets
from tlm.settings.options import Layout
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.stages import checkpoint_recipe

FOLDER, RUNS, STORE, MODELS = "build/gpu", ".runs", "store", "models"
MODEL = "model"  # archive of the published model, which two parts share
MOST_BYTES = 45_000_000
READ = ("task", "tokenizer", "tokens")  # kinds that training reads; of others it needs the manifest
WEIGHTS = "model.safetensors"
Planned: TypeAlias = tuple[PlannedRun, list[Artifact]]  # a run, and what it reads


class Part(NamedTuple):
    """Runs that share an archive.

    Attributes:
        task: Folder of the task, in that of the data.
        preset: Preset of all runs; "" where published models have their own.
        texts: Text of each arm: of networks from scratch, or ("" for stage 2 alone) of a published model.
        seeds: How many.
    """

    task: str
    preset: str
    texts: tuple[str, ...]
    seeds: int


OF_PUBLISHED = ("", "bm25", "random")
PARTS = {  # the quickest first
    "published-scierc": Part("scierc", "", OF_PUBLISHED, 5),
    "published-acl-arc": Part("acl-arc", "", OF_PUBLISHED, 5),
    "mini": Part("scierc", "mini", ("bm25", "random", TASK_ONLY), 3),
}


def gpu_pack(data: str, model: str, *, corpus: str = "", preset: str = "", folder: str = FOLDER) -> str:
    """Make the archives that `gpu` reads, each of 45 MB or less: copy them to the same folder on the other machine.

    All seeds of the arm random share one draw of text.

    Args:
        data: Folder with the tasks, in folders scierc and acl-arc.
        model: Folder of a published model; its weights are rounded to bf16.
        corpus: File of the corpus; by default mixed-corpus.jsonl.zst in the folder of the data.
        preset: Named settings instead of those of each part, such as tiny to try the command.
        folder: Where to write.

    Raises:
        InputError: an archive is too large.
    """
    made, root = [], str(Path(folder) / "making")
    small = _rounded(Path(model), Path(folder) / MODELS)
    loaded = load_corpus([corpus or f"{data}/mixed-corpus.jsonl.zst"], layout=Layout(source_field="s"), root=root)
    planned = {
        name: list(_runs(part, load_task(f"{data}/{part.task}", root=root), loaded, small, preset, root))
        for name, part in PARTS.items()
    }
    for name, runs in {MODEL: [], **planned}.items():
        archive = Path(folder) / f"{name}.tar.xz"
        _write(archive, name, runs, root, [] if runs else [small])
        if archive.stat().st_size > MOST_BYTES:
            raise InputError(f"{archive} has {archive.stat().st_size:,} bytes; expected at most {MOST_BYTES:,}")
        made.append(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB, {len(runs)} runs")
    return "\n".join(made)


def _runs(part: Part, task: str, corpus: str, model: Path, preset: str, root: str) -> Iterator[Planned]:
    """The runs of a part, the first seed of all arms first, each with what it reads."""
    settings = presets.resolve(preset or part.preset or preset_of("bm25", ""))
    index, asked, words = build_index(corpus, root=root), settings.retrieve, settings.tokenizer
    bm25 = export(retrieve(index, task, top_k=asked.top_k, query=asked.query, root=root))
    random = export(retrieve(index, task, arm="random", top_k=asked.top_k, same_size_as=bm25, root=root))
    subsets = {"bm25": bm25, "random": random}
    tokenizer = place = ""  # a published model has its own
    if part.preset:
        tokenizer = build_tokenizer(corpus, task, kind=words.kind, vocab_size=words.vocab_size, root=root)
    else:
        place = str(model)
    for seed, text in product(range(part.seeds), part.texts):
        own, subset = preset or part.preset or preset_of(text, ""), subsets.get(text, "")
        arm, stages = arm_of(place, text) if place else text, "12" if text else "2"
        run = PlannedRun(arm, seed, task, tokenizer, subset, own, "", stages, model=place).loaded(root)
        named = [Artifact.open(uri) for uri in (task, tokenizer, subset) if uri]
        start = list(_inputs(Artifact.open(run.start))) if run.start else []
        how = presets.resolve(own)
        recipe = checkpoint_recipe(task, tokenizer, subset, how, seed, root, run.start) if text else None
        read = [] if recipe is None else [one for one in recipe.inputs.values() if one.manifest.kind in READ]
        yield run._replace(start=""), [*named, *start, *read]


def _inputs(artifact: Artifact) -> Iterator[Artifact]:
    return (artifact.input(name) for name in artifact.manifest.inputs)


def _write(archive: Path, name: str, planned: list[Planned], root: str, models: list[Path]) -> None:
    """Write an archive. Its data are mostly numbers of 16 bits, and texts of two arms are partly the same."""
    store, runs = Path(root).absolute(), Path(root) / f"{name}{RUNS}"
    there = {f"{store}/": f"{STORE}/", f"{archive.parent}/": ""}
    runs.write_text("".join(f"{_moved(run, there)}\n" for run, _ in planned), "utf-8")
    artifacts = everything(one for _, read in planned for one in read)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 27, "lc": 2, "lp": 1, "pb": 1}]
    with lzma.open(archive, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for one in artifacts:
            place = store / one.folder_name
            for path in sorted(place.rglob("*")) if one.manifest.kind in READ else [place / MANIFEST]:
                if path.is_file():
                    tar.add(path, f"{STORE}/{path.relative_to(store)}")
        for model in models:
            tar.add(model, f"{MODELS}/{model.name}")
        tar.add(runs, runs.name)  # last: what is unpacked is whole


def _moved(run: PlannedRun, beginnings: dict[str, str]) -> PlannedRun:
    """The run with other beginnings of its addresses."""

    def moved(address: str) -> str:
        old = next((one for one in beginnings if address.startswith(one)), "")
        return beginnings.get(old, "") + address.removeprefix(old)

    task, tokenizer, subset, model = map(moved, (run.task, run.tokenizer, run.subset, run.model))
    return run._replace(task=task, tokenizer=tokenizer, subset=subset, model=model)


def unpack(name: str, folder: str) -> list[PlannedRun]:
    """The runs of a part, which is unpacked if it is not yet; none where an archive is lacking."""
    for one in [name] if PARTS[name].preset else [MODEL, name]:
        runs, archive = Path(folder) / f"{one}{RUNS}", Path(folder) / f"{one}.tar.xz"
        if not runs.exists():
            if not archive.exists():
                return []
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
    here = {f"{one}/": f"{(Path(folder) / one).absolute()}/" for one in (STORE, MODELS)}
    return [_moved(PlannedRun.parse(line), here) for line in runs.read_text("utf-8").splitlines()]


def _rounded(model: Path, folder: Path) -> Path:
    """A copy of a published model below `folder`, with its weights in bf16: those of 90 MB fit into 45."""
    import torch
    from safetensors.torch import load_file

    from tlm.training.model.encoder import write_tensors

    copy = folder / model.name
    copy.mkdir(parents=True, exist_ok=True)
    for path in model.iterdir():
        if path.is_file() and path.suffix in (".json", ".txt"):
            shutil.copy(path, copy / path.name)
    weights = load_file(model / WEIGHTS)
    halves = {name: one.bfloat16() if one.dtype == torch.float32 else one for name, one in weights.items()}
    write_tensors(halves, copy / WEIGHTS)
    return copy
