"""The images of the components, and the decorator that makes a component without installing packages."""

import os
from collections.abc import Callable
from typing import Any

from kfp import dsl

from tlm import __version__

REGISTRY = os.environ.get("TLM_IMAGES") or "ghcr.io/tlm-kubeflow"
DATA_IMAGE = f"{REGISTRY}/tlm-data:{__version__}"
TRAIN_IMAGE = f"{REGISTRY}/tlm-train:{__version__}"


def component(image: str) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator for a lightweight component in `image`, which contains tlm and kfp."""
    return dsl.component(base_image=image, install_kfp_package=False)
