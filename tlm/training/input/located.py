"""Find a published model: in a local folder, on S3, or on the Hugging Face Hub."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from tlm.artifacts.stores.local import cache_folder, scratch_folder
from tlm.data.registry import check_endpoint
from tlm.errors import InputError, reason
from tlm.shallow.folder import refuse_code

if TYPE_CHECKING:
    from tlm.artifacts.stores.s3 import S3Store

TEXTS = (
    "config.json", "tokenizer*.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.*", "merges.txt", "*.model",
)  # fmt: skip
WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")  # never pytorch_model.bin: a pickle is a program
MLM_HEAD = "mlm_head.safetensors"  # of a checkpoint, beside its model: the head that predicts tokens
EXPECTED = "expected a model as transformers writes it (config.json, model.safetensors, tokenizer.json)"
CONVERT = (
    "older ones (pytorch_model.bin) are pickles, which can run code: if you trust them, convert them by "
    "AutoModelForMaskedLM.from_pretrained('old').save_pretrained('new'), and give the new folder"
)
# Arguments for the library's from_pretrained: download nothing, and run no code but its own.
HERE = {"local_files_only": True, "trust_remote_code": False}


@contextmanager
def model_folder(model: str, *, of_tokenizers: bool = False, files: Sequence[str] = ()) -> Iterator[Path]:
    """The local folder of a model. Files downloaded from S3 are removed afterwards.

    Args:
        model: A folder, ``s3://bucket/folder``, or a name on the Hub: ``bert-base-uncased``, ``owner/name``.
        of_tokenizers: Only the tokenizer is needed, so a file will do as well as a folder.
        files: Patterns of the files to download, also from folders within; by default those of `files_of`.

    Raises:
        InputError: there is no such folder or model, or the Hub cannot be reached.
    """
    if model.startswith("s3://"):
        located: AbstractContextManager[Path] = _from_s3(model, of_tokenizers, files)
    else:
        located = nullcontext(_from_disk_or_hub(model, of_tokenizers, files))
    with located as folder:
        refuse_code(folder)
        yield folder


def names_of(model: str) -> list[str]:
    """The names of a model's files, also of those in folders within; no weights are downloaded.

    Raises:
        InputError: the Hub cannot be reached, and no model of that name was downloaded before.
    """
    if model.startswith("s3://"):
        return _in_bucket(model)[2]
    folder = Path(model)
    if is_hub_name(model):
        from huggingface_hub import HfApi

        check_endpoint()
        try:
            return [file.rfilename for file in HfApi().model_info(model).siblings or ()]
        except Exception:  # the Hub's client raises many kinds; without a network, it finds what was downloaded before
            folder = _from_hub(model, TEXTS)
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*")]


def is_hub_name(model: str) -> bool:
    """Whether a model is to be had from the Hub: it is no folder here, and is not written like one."""
    written = model.startswith((".", "/", "~")) or model.count("/") > 1 or model.endswith(".json")
    return not written and not Path(model).exists()


def published_name(model: str) -> str:
    """The name of a model: the last part of its path or of its name on the Hub."""
    return Path(model).absolute().name


def files_of(names: Sequence[str], weights: bool = True) -> list[str]:
    """The files of a folder that belong to the model, sorted."""
    return _matching(names, TEXTS + WEIGHTS if weights else TEXTS)


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return sorted(name for name in names if any(fnmatch(name, pattern) for pattern in patterns))


@contextmanager
def _from_s3(address: str, of_tokenizers: bool, files: Sequence[str]) -> Iterator[Path]:
    store, prefix, names = _in_bucket(address)
    own = [name for name in names if "/" not in name]
    chosen = _matching(names, files) if files else files_of(own, weights=not of_tokenizers)
    if not chosen:
        raise InputError(f"{address}: there is no model here; {EXPECTED}")
    with scratch_folder(cache_folder() / "models", "model") as folder:
        store.cache = folder
        for name in chosen:
            store.local(prefix + name)
        yield folder / prefix


def _in_bucket(address: str) -> "tuple[S3Store, str, list[str]]":
    """The bucket of an address, as a store; what the names of its files there begin with; and how they go on."""
    from tlm.artifacts.stores.s3 import S3Store

    bucket, _, key = address.removeprefix("s3://").partition("/")
    store, prefix = S3Store(f"s3://{bucket}"), f"{key.rstrip('/')}/" if key else ""
    return store, prefix, [stored.name.removeprefix(prefix) for stored in store.list(prefix)]


def _from_disk_or_hub(model: str, of_tokenizers: bool, files: Sequence[str]) -> Path:
    if Path(model).is_dir() or (of_tokenizers and Path(model).is_file()):
        return Path(model)
    if not is_hub_name(model):
        raise InputError(f"{model}: there is no such {'file or folder' if of_tokenizers else 'folder'}; {EXPECTED}")
    return _from_hub(model, files or (TEXTS if of_tokenizers else TEXTS + WEIGHTS))


def _from_hub(name: str, files: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    check_endpoint()
    try:
        return Path(snapshot_download(name, allow_patterns=list(files)))
    except Exception as error:  # the Hub's client raises many kinds
        raise _explained(name, error) from None


def _explained(name: str, error: Exception) -> InputError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"RepositoryNotFoundError", "GatedRepoError", "HFValidationError"}:
        return InputError(f"{name} is not a folder, and the Hugging Face Hub has no such public model; check the name")
    last = name.rpartition("/")[2]
    return InputError(
        f"{name} is not a folder, and the Hugging Face Hub cannot be reached ({reason(error)}); on a machine with a "
        f"network, run 'hf download {name} --local-dir {last}', and give the folder {last} instead (for pods, from S3)"
    )
