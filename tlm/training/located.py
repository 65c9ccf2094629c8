"""Where a published model lies: in a folder here, on S3, or on the Hugging Face Hub."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from tlm.artifacts.scratch import scratch_folder
from tlm.errors import InputError, reason

TEXTS = (
    *("config.json", "tokenizer*.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model"),
)
WEIGHTS = (
    ("model*.safetensors", "model.safetensors.index.json"),
    ("pytorch_model*.bin", "pytorch_model.bin.index.json"),
)
EXPECTED = "expected a model as transformers writes it (config.json, model.safetensors, tokenizer.json)"


@contextmanager
def model_folder(place: str, *, of_tokenizers: bool = False) -> Iterator[Path]:
    """The folder of the model that `place` means; what was downloaded from S3 is gone afterwards.

    Args:
        place: A folder, ``s3://bucket/folder``, or a name on the Hub: ``bert-base-uncased``, ``owner/name``.
        of_tokenizers: Only the tokenizer is wanted; then a file is as good as a folder.

    Raises:
        InputError: there is no such folder or model, or the Hub is not reached.
    """
    if place.startswith("s3://"):
        with _from_s3(place, of_tokenizers) as folder:
            yield folder
    elif Path(place).is_dir() or (of_tokenizers and Path(place).is_file()):
        yield Path(place)
    elif place.startswith((".", "/", "~")) or place.count("/") > 1 or place.endswith(".json"):
        raise InputError(f"{place}: there is no such {'file or ' * of_tokenizers}folder; {EXPECTED}")
    else:
        yield _from_hub(place, of_tokenizers)


def files_of(names: Sequence[str], weights: bool = True) -> list[str]:
    """Those of a folder's files that make the model, sorted; safetensors go before torch's own format."""
    found = [name for name in names if any(fnmatch(name, pattern) for pattern in TEXTS)]
    for patterns in WEIGHTS:
        kind = [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]
        if kind and weights:
            return sorted(found + kind)
    return sorted(found)


@contextmanager
def _from_s3(address: str, of_tokenizers: bool) -> Iterator[Path]:
    from tlm.artifacts.s3 import S3Store

    bucket, _, key = address.removeprefix("s3://").partition("/")
    store, prefix = S3Store(f"s3://{bucket}"), f"{key.rstrip('/')}/" if key else ""
    names = [stored.name.removeprefix(prefix) for stored in store.list(prefix)]
    chosen = files_of([name for name in names if "/" not in name], weights=not of_tokenizers)
    if not chosen:
        raise InputError(f"{address}: there is no model here; {EXPECTED}")
    parent = Path(os.environ.get("TLM_CACHE") or Path(tempfile.gettempdir()) / f"tlm-cache-{os.getuid()}")
    with scratch_folder(parent / "models", "model") as folder:
        store.cache = folder
        for name in chosen:
            store.local(prefix + name)
        yield folder / key


def _from_hub(name: str, of_tokenizers: bool) -> Path:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=[*TEXTS, *([] if of_tokenizers else WEIGHTS[0])]))
        if not (of_tokenizers or any(folder.glob(WEIGHTS[0][0]))):
            folder = Path(snapshot_download(name, allow_patterns=[*TEXTS, *WEIGHTS[1]]))
    except Exception as error:  # the Hub's client raises many kinds, all of which mean the same to a person
        raise _explained(name, error) from None
    return folder


def _explained(name: str, error: Exception) -> InputError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"RepositoryNotFoundError", "GatedRepoError", "HFValidationError"}:
        return InputError(f"{name} is no folder here, and the Hugging Face Hub has no such model open to all; check it")
    last = name.rpartition("/")[2]
    return InputError(
        f"{name} is no folder here, and the Hugging Face Hub is not reached ({reason(error)}); where there is a "
        f"network run 'hf download {name} --local-dir {last}', and give the folder {last} instead"
    )
