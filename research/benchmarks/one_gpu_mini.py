"""The preset `mini` on one GPU, three arms, each under ten minutes; the runs are kept as results to commit.

python -m research.benchmarks.one_gpu_mini --corpus 'corpus/*.jsonl.gz' --task scierc [--set corpus_source_field=s]

With --rehearse the same is done with the preset `tiny`, on whatever the machine has: only the size differs.
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from research.paper.results import FOLDER

MOST_SECONDS = 600.0
GPU, REHEARSAL = "mini", "tiny"


def main(arguments: list[str] | None = None) -> int:
    """0; 1 where an arm took longer than ten minutes; 2 where there is no GPU; else the code of the failed run."""
    given = _parse(arguments)
    if not given.rehearse and not _has_gpu():
        print(
            "one_gpu_mini: torch sees no GPU; run it where there is one, or with --rehearse in small", file=sys.stderr
        )
        return 2
    run = subprocess.run(_command(given), stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        return run.returncode
    uri = run.stdout.strip().splitlines()[-1]
    slow = [name for name, seconds in _times(uri).items() if seconds > MOST_SECONDS and not given.rehearse]
    _keep(uri, given)
    for name in slow:
        print(f"one_gpu_mini: {name} took longer than {MOST_SECONDS / 60:.0f} minutes", file=sys.stderr)
    return int(bool(slow))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m research.benchmarks.one_gpu_mini", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--corpus", required=True, help="files of the general corpus, as corpus_paths")
    parser.add_argument("--task", required=True, help="the task, as task_path")
    parser.add_argument("--root", default="artifacts", help="where artifacts are kept (artifacts)")
    parser.add_argument("--results", default=FOLDER, help="folder of the kept results (%(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="more parameters of the run")
    parser.add_argument("--rehearse", action="store_true", help="in seconds, with or without a GPU")
    return parser.parse_args(arguments)


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def _command(given: argparse.Namespace) -> list[str]:
    values = {
        "run_preset": REHEARSAL if given.rehearse else GPU,
        "run_arms": "task-only,random,bm25",
        "train_gpus": "0" if given.rehearse else "1",
        "index_engine": "embedded",
        "corpus_paths": given.corpus,
        "task_path": given.task,
        "store_root": given.root,
    }
    pairs = [*(f"{name}={value}" for name, value in values.items()), *given.set]
    return [sys.executable, "-m", "pipelines.run", "local", *(part for pair in pairs for part in ("--set", pair))]


def _times(report: str) -> dict[str, float]:
    """Seconds of training by arm, printed with the device and the scores."""
    from tlm.artifacts.artifact import Artifact

    told = Artifact.open(report, "report").json("report.json")
    groups = [group for group in told["groups"] if group["kind"] == "encoder"]
    for group in groups:
        print(_line(group, told["task"]["metric_name"]))
    return {group["name"]: group["cost"]["seconds"]["mean"] for group in groups}


def _line(group: dict[str, Any], metric: str) -> str:
    minutes, scores = (
        group["cost"]["seconds"]["mean"] / 60,
        {part: 100 * group[part]["mean"] for part in ("dev", "test")},
    )
    device = group["stages"]["stage 1"]["device"]
    return (
        f"{group['name']}: {minutes:.1f} min on {device}, {metric} {scores['dev']:.1f} dev, {scores['test']:.1f} test"
    )


def _keep(report: str, given: argparse.Namespace) -> None:
    """Keep the runs; the command noted with them names no place of this machine."""
    from research.paper.keep import keep

    more = "".join(f" --set {pair}" for pair in given.set) + " --rehearse" * given.rehearse
    command = f"python -m research.benchmarks.one_gpu_mini --corpus … --task …/{Path(given.task).name}{more}"
    for line in keep([report], table="arms", results=given.results, command=command).splitlines():
        print(f"kept {line}")


if __name__ == "__main__":
    sys.exit(main())
