"""Optional dependencies: one place that imports them, one line when they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from heldout.core.errors import MissingExtra


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module`` of the optional dependency group ``extra``, or say how to install it.

    >>> require("json", extra="none", purpose="an example").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise  # the package is there and broken: that is a fault, not a missing extra
        raise MissingExtra(module.split(".")[0], extra, purpose) from None
