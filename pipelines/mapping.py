"""Read YAML files that users write and that hold one mapping."""

from pathlib import Path
from typing import Any

import yaml

from tlm.errors import InputError, with_article


def read_mapping(file: Path, *, language: str, expected: str, advice: str) -> dict[Any, Any]:
    """Return the mapping in `file`.

    Args:
        file: The file.
        language: What the error calls the format: YAML, or JSON (which is YAML too).
        expected: What the file should contain, for the error.
        advice: Where to find one or how to make one, for the error.

    Raises:
        InputError: The file cannot be read, is no YAML, or holds something else than a mapping.
    """
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); {advice}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not valid {language}: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file}: expected {expected}, found {with_article(type(values).__name__)}")
    return values
