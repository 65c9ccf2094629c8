"""Small YAML files that people write: one mapping each."""

from pathlib import Path
from typing import Any

import yaml

from tlm.errors import InputError, with_article


def read_mapping(file: Path, *, language: str, expected: str, advice: str) -> dict[Any, Any]:
    """What `file` holds.

    Args:
        file: The file.
        language: What people take it for: YAML, or JSON, which is YAML too.
        expected: What should be in it, for the error.
        advice: Where to find or how to make one, for the error.

    Raises:
        InputError: it cannot be read, is no YAML, or holds something else than a mapping.
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
