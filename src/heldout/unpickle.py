"""Old published pickles, read without running anything that is in them.

Only plain containers, NumPy arrays and (for data frames) an explicit list of further names are
rebuilt. Anything else, above all a callable, is refused by name before it is looked up.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from heldout.errors import BadFile, NotFound

_PLAIN: frozenset[tuple[str, str]] = frozenset(
    {
        ("builtins", name)
        for name in ("dict", "list", "set", "frozenset", "tuple", "complex", "bytearray", "slice")
    }
    | {("__builtin__", name) for name in ("dict", "list", "set", "frozenset", "tuple")}
    | {
        ("collections", "OrderedDict"),
        ("_codecs", "encode"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
        ("numpy.core.numeric", "_frombuffer"),
    }
)


class _Restricted(pickle.Unpickler):
    def __init__(self, file: io.BufferedIOBase, allow: frozenset[tuple[str, str]]) -> None:
        super().__init__(file, encoding="latin1")
        self._allow = allow

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allow:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        if module == "__builtin__":
            module = "builtins"
        return super().find_class(module, name)


def read_pickle(path: Path, *, allow: Iterable[tuple[str, str]] = ()) -> Any:
    """Read a pickle of containers and arrays; refuse one that names anything else.

    ``allow`` adds (module, name) pairs for one known layout, such as a data frame's.
    """
    try:
        with path.open("rb") as handle:
            return _Restricted(handle, _PLAIN | frozenset(allow)).load()
    except FileNotFoundError:
        raise NotFound(f"no file {path}", fix="check the path") from None
    except Exception as error:  # a hostile pickle can raise anything; nothing of it was run
        raise BadFile(
            path,
            f"refused as a pickle ({error})",
            fix="only plain containers and arrays are read; export the data as JSON or Parquet",
        ) from None
