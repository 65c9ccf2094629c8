"""Security: no data is run as code, nobody leads out of a root or to a server that is not meant, nothing is told that
is secret, and what a stranger wrote stays text. Each check is itself checked with something planted that it must find.
"""

import csv
import gzip
import io
import json
import random
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from tests.faults import browser, escapes, hostile, planted, refusals, unpickling
from tests.faults.building import faults_of_dockerfile
from tests.faults.escapes import names as named
from tests.faults.junit import counted
from tests.faults.row import HOME, Row
from tests.faults.tally import tally
from tests.servers import servers
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS
from tlm.evaluation.predict.written import write_rows

SOURCES = ("tlm", "components", "pipelines", "docker", "k8s")
PLANTED_CODE = (
    "import pickle", "from joblib import load", "import torch\ntorch.load(f)", "np.load(f, allow_pickle=True)",
    "eval('1')", "import yaml\nyaml.load(f, yaml.Loader)", "M.from_pretrained(f)", "M.f(trust_remote_code=True)",
    "import os\nos.system('x')", "run('x', shell=True)", "import shelve", "load(f, weights_only=False)",
)  # fmt: skip
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
TESTS = {
    "tests/servers/test_elastic_security.py": "Elasticsearch: TLS, keys, messages without them",
    "tests/k8s/test_elasticsearch_keys.py": "Elasticsearch: least privilege, by 403s from the real server",
    "tests/k8s/test_pods.py": "compiled pods: users, capabilities, secrets, addresses",
    "tests/k8s/test_policies.py": "manifests: network policies, permissions, no secret in plain text",
    "tests/containers/test_images.py": "images: contents, any user, read-only",
}


def rows(seconds: int, seed: int) -> Iterator[Row]:
    """All of it; an Elasticsearch with security and an S3 server are started."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield tally("no source runs data as code", code())
        yield tally("planted pickles are found", pickles(folder))
        yield tally("models that contain code are refused", models(folder / "models"))
        yield tally(
            "manifest names out of the root are refused", escapes.manifests(str(folder / "root"), named(400, seed))
        )
        with servers.s3() as server, refusals.settings(**server_settings(server)):
            bucket(server)
            yield tally("the same on S3", escapes.manifests("s3://escapes/root", named(200, seed)))
        yield tally("links out of the root are refused", escapes.links(folder / "links"))
        yield tally("keys from a malicious S3 server are refused", escapes.keys(folder / "keys", named(120, seed)))
        yield from addresses(folder, (301, 302, 303, 307, 308))
        yield from pages(folder, range(seed, seed + 8), encoder=True)
        yield tally("predict's CSV and JSON: formulas, escapes, bidi characters", predictions(20_000, seed))
    yield tally("Dockerfile: hashes, versions, no tools, no root", faults_of_dockerfile())
    with tempfile.TemporaryDirectory() as name, planted.elasticsearch() as url, planted.planted(Path(name), url) as run:
        yield from secrets(run, "task-only", "random", "bm25", index_engine="elasticsearch", index_name="planted")
    yield from counted([*TESTS, f"--override-ini=cache_dir={tempfile.gettempdir()}/none"], _by_file)
    yield from counted(
        ["tests/unit/project/test_project.py", "-k", "lock"], lambda *_: "locks: hashes, one version, no host"
    )


def _by_file(module: str, _: str) -> str:
    return TESTS[f"{module.replace('.', '/')}.py"]


# ---- no pickle, no code


def code() -> Iterator[str]:
    """Every source file of ours; and the same check on what it has to find."""
    for part in SOURCES:
        for path in sorted((HOME / part).rglob("*.py")):
            yield _told(str(path.relative_to(HOME)), unpickling.faults(path.read_text()))
    for source in PLANTED_CODE:
        yield "" if unpickling.faults(source) else f"not found: {source!r}"


def _told(what: str, found: list[str]) -> str:
    return f"{what}: {'; '.join(found)}" if found else ""


def pickles(folder: Path) -> Iterator[str]:
    """Pickles in every dress, which the search through a run's files has to find; and what is none."""
    made = folder / "pickles"
    made.mkdir(parents=True)
    torch.save({"a": torch.ones(2)}, made / "torch.bin")  # noqa: TID251
    plain = zipfile.ZipFile(made / "torch.bin").read("torch/data.pkl")
    np.save(made / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(made / "objects.npz", a=np.array([None]))
    old = {"0.txt": b"(lp0\nI1\naI2\na.", "1.bin": b"](K\x01K\x02e."}  # protocols that say nothing of themselves
    for name, data in {"2.pkl": plain, "packed.gz": gzip.compress(plain), **old}.items():
        (made / name).write_bytes(data)
    for path in sorted(made.iterdir()):
        yield "" if unpickling.pickled(path) else f"not found: {path.name}"
    for name, data in {"a.json": b'{"a": [1]}', "a.npy": b"\x93NUMPY", "empty": b"", "text": b". A cat.\n"}.items():
        (folder / name).write_bytes(data)
        yield "" if not unpickling.pickled(folder / name) else f"{name} is taken for one"


def models(root: Path) -> Iterator[str]:
    """Models with code, or pickled."""
    root.mkdir()
    for what, trial, expected in refusals.models(root):
        yield _refused(what, trial, expected)
        yield f"{what}: its code was run" if (root / "ran").exists() else ""


# ---- addresses


def addresses(folder: Path, redirections: tuple[int, ...]) -> Iterator[Row]:
    """Servers, schemes and buckets that are refused; what is not; and servers that send elsewhere."""
    groups = {
        "link-local addresses in every notation are refused": refusals.link_local(),
        "remote servers without TLS are refused": refusals.plain_http(),
        "schemes other than s3, file and hf are refused": refusals.schemes(folder),
        "buckets that are not listed are refused": refusals.buckets(folder),
    }
    for what, trials in groups.items():
        yield tally(what, (_refused(name, trial) for name, trial in trials))
    yield tally("allowed addresses are accepted", (_taken(name, trial) for name, trial in refusals.allowed()))
    yield tally("redirects are not followed", _redirected(redirections))


def _redirected(redirections: tuple[int, ...]) -> Iterator[str]:
    for status in redirections:
        for name in refusals.SERVERS[:2]:
            with refusals.redirecting(status) as (url, asked):
                told = _refused(f"{name}, {status}", refusals.with_setting(name, url, asking=True))
            yield told or "; ".join(asked)


def _refused(what: str, trial: Callable[[], object], expected: str = "") -> str:
    try:
        return "" if refusals.refused(trial, expected) else f"{what} was taken, or told wrongly"
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"


def _taken(what: str, trial: Callable[[], object]) -> str:
    try:
        trial()
    except Exception as error:
        return f"{what}: {error}"
    return ""


# ---- secrets


def server_settings(server: servers.S3Server) -> dict[str, str]:
    """What leads boto3 there."""
    return {"AWS_ENDPOINT_URL_S3": server.url, "AWS_ACCESS_KEY_ID": server.access,
            "AWS_SECRET_ACCESS_KEY": server.secret}  # fmt: skip


def bucket(server: servers.S3Server) -> None:
    """The bucket `escapes`."""
    import boto3

    boto3.client("s3", endpoint_url=server.url).create_bucket(Bucket="escapes")


def secrets(run: planted.Run, *arms: str, some: bool = False, **parameters: str) -> Iterator[Row]:
    """A whole run and failing commands, all or some; then all that was written and said is searched."""
    ended = run.pipeline(*arms, **parameters)
    yield tally("a whole run with planted secrets", ["" if ended == 0 else run.said[-1][1].decode()[-2000:]])
    failed = map(_one_sentence(run), planted.failing(run, some))
    yield tally("failing commands with secrets: one sentence, exit code 2", failed)
    written = list(run.written())
    found = ((what, planted.leaks(data)) for what, data in written)
    yield tally("their files and outputs contain no secret", (_told(what, leaks) for what, leaks in found))
    yield tally("their files contain no pickle", (_pickle(what, data) for what, data in written))
    yield tally("secrets planted in files are found", _planted_secrets())


def _one_sentence(run: planted.Run) -> Callable[[tuple[str, int]], str]:
    def judge(case: tuple[str, int]) -> str:
        said = run.said[-1][1].decode()
        return "" if case[1] == 2 and "Traceback" not in said else f"{case[0]} ended with {case[1]}: {said[-1000:]}"

    return judge


def _pickle(what: str, data: bytes) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return f"{what} is a pickle" if unpickling.pickled(Path(file.name)) else ""


def _planted_secrets() -> Iterator[str]:
    for name, secret in planted.SECRETS.items():
        for form in planted.forms(secret):
            for dress in (bytes, gzip.compress):
                data = dress(b'{"key": "' + form + b'"}')
                yield "" if name in planted.leaks(data) else f"{name} as {form!r}"


# ---- pages


def pages(folder: Path, seeds: range, encoder: bool) -> Iterator[Row]:
    """Pages of hostile text and names, by a parser; the last seed's in a real browser too, where there is one."""
    made = {seed: list(hostile.pages(folder / f"pages-{seed}", seed, encoder and seed == seeds[-1])) for seed in seeds}
    yield tally(
        "pages of hostile text are inert (parser)", (_inert(*page) for found in made.values() for page in found)
    )
    if browser.program() is None:
        print(browser.MISSING)
        return
    htmls = [page for page in made[seeds[-1]] if page[0].endswith(".html")]
    yield tally("the same (browser): no script, no request", (_opened(*page) for page in htmls))
    htmls = htmls if encoder else htmls[:1]
    without = [(name, POLICY.sub("", text)) for name, text in htmls]
    yield tally("without the content security policy: escaping suffices", (_opened(*page) for page in without))
    unescaped = [(name, _with_markup(text)) for name, text in htmls]
    yield tally("with injected markup: the policy suffices", (_opened(*page) for page in unescaped))
    neither = [(name, _with_markup(text)) for name, text in without[:1]]
    yield tally("without both: the browser detects it", (_opened(*page, acts=True) for page in neither))


def _inert(name: str, text: str) -> str:
    try:
        hostile.is_inert(name, text)
    except AssertionError as error:
        return f"{name}: {error}"
    return ""


def _with_markup(text: str) -> str:
    return text.replace("<body>", f"<body>{''.join(hostile.ACTIVE)}")


def _opened(name: str, text: str, acts: bool = False) -> str:
    found = browser.opened(text)
    return "" if found.acted is acts else f"{name}: {found.asked or 'a script ran'}"


# ---- predictions


def predictions(count: int, seed: int) -> Iterator[str]:
    """Rows of hostile texts and labels, written and read again: no cell acts, and JSON is what it was."""
    chance = random.Random(seed)
    signs = ("=1+1", "+1", "-2", "@x", "\t", "\r", "\n", ";", ",", '"', "'", " ", "＝1", "\u202e", "\x1b[31m", "\x9b")
    pieces = [*signs, "a", *hostile.ACTIVE]
    for _ in range(count):
        text, label = ("".join(chance.choices(pieces, k=chance.randrange(1, 6))) for _ in range(2))
        row = {"row": 1, "text": text, "label": label, "probability": 0.5, "probabilities": {label: 0.5}}
        table, lines = io.StringIO(), io.StringIO()
        head = ["row", "text", "label", "probability", f"p({label})", "error"]
        write_rows([row], "csv", head, table)
        write_rows([row], "jsonl", head, lines)
        yield _acting(table.getvalue()) or _hidden(lines.getvalue(), row)


def _acting(table: str) -> str:
    read = [cell for line in csv.reader(io.StringIO(table, newline="")) for cell in line]
    split = re.split(r"[;\t\r\n]", table)  # as a spreadsheet does that parts cells by others than the comma
    cells = [cell for cell in [*read, *split] if not re.fullmatch(r"[+-][0-9]+", cell)]  # a number is no formula
    acting = [cell for cell in cells if re.match(r"[=+\-@＝＋－＠\t\r]", cell)]
    return f"acts: {acting[0]!r}" if acting else "hidden" if BIDI_AND_CONTROLS.search(re.sub(r"\s", "", table)) else ""


def _hidden(line: str, row: dict[str, object]) -> str:
    if BIDI_AND_CONTROLS.search(line.replace("\n", "")):
        return f"hidden in JSON: {line!r}"
    return "" if json.loads(line) == row else f"not what it was: {line!r}"
