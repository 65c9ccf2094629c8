"""Damage to the files of an artifact or a snapshot, by a seeded chance; each function says what it did."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import MANIFEST, RUN, USED, Manifest, content_digest

STRANGERS = ("added_tokens.json", "adapter_config.json", "model.safetensors.index.json", "passages-99999.parquet")


def files(folder: Path) -> list[Path]:
    """All files of an artifact, without the note when it was last used, whose content nobody reads."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != USED)


def data_files(folder: Path) -> list[Path]:
    """Those that hold data and are not empty."""
    return [path for path in files(folder) if path.name not in (MANIFEST, RUN) and path.stat().st_size]


def flip(folder: Path, chance: random.Random) -> str:
    """A single bit of any file."""
    path = chance.choice([path for path in files(folder) if path.stat().st_size])
    place, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path.name}"


def truncate(folder: Path, chance: random.Random, share: float = -1.0) -> str:
    """Any file, to `share` of its length."""
    path = chance.choice([path for path in files(folder) if path.stat().st_size])
    length = int((chance.random() if share < 0 else share) * path.stat().st_size)
    path.write_bytes(path.read_bytes()[:length])
    return f"{path.name} cut to {length} bytes"


def remove(folder: Path, chance: random.Random) -> str:
    """A data file."""
    path = chance.choice(data_files(folder))
    path.unlink()
    return f"{path.name} removed"


def swap(folder: Path, chance: random.Random) -> str:
    """The bytes of two data files; of a single one and the manifest."""
    found = data_files(folder)
    one, another = chance.sample(found if len(found) > 1 else [*found, folder / MANIFEST], 2)
    first, second = one.read_bytes(), another.read_bytes()
    one.write_bytes(second)
    another.write_bytes(first)
    return f"{one.name} and {another.name} exchanged"


def add(folder: Path, chance: random.Random) -> str:
    """A file that is not of this artifact, where a library may look for one."""
    place = chance.choice(sorted({path.parent for path in data_files(folder)}))
    path = place / chance.choice(STRANGERS)
    path.write_text(json.dumps({"weight_map": {}, "peft_type": "LORA", "[PAD]": 0, "the": 1}))
    return f"{path} added"


def take_anothers(folder: Path, chance: random.Random) -> str:
    """The manifest of another artifact of any kind, or another snapshot."""
    others = sorted(path for path in folder.parents[1].glob("*/*/manifest.json") if path.parent != folder)
    other = chance.choice([path for path in others if path.parents[1] == folder.parent] or others)
    shutil.copy(other, folder / MANIFEST)
    return f"manifest of {other.parent.name}"


def age(folder: Path, chance: random.Random) -> str:
    """A manifest as an earlier run of the same recipe would have left it: in order, but of other files."""
    manifest = Manifest.from_bytes((folder / MANIFEST).read_bytes(), str(folder))
    entries = [entry.model_copy(update={"sha256": f"{chance.getrandbits(256):064x}"}) for entry in manifest.files]
    content = content_digest(entries, manifest.details)
    changed: dict[str, Any] = {"files": entries, "content": content}
    (folder / MANIFEST).write_bytes(manifest.model_copy(update=changed).to_bytes())
    return "manifest of an earlier run"
