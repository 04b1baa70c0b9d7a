"""Old published pickles, read without running anything that is in them.

Only plain containers, NumPy arrays and (for data frames) an explicit list of further names are
rebuilt. Anything else, above all a callable, is refused by name before it is looked up.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from heldout.core.errors import BadFile, NotFound

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
    def __init__(
        self,
        file: IO[bytes],
        allow: frozenset[tuple[str, str]],
        stand_ins: Mapping[tuple[str, str], Any],
    ) -> None:
        super().__init__(file, encoding="latin1")
        self._allow = allow
        self._stand_ins = stand_ins

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._stand_ins:
            return self._stand_ins[module, name]
        if (module, name) not in self._allow:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        if module == "__builtin__":
            module = "builtins"
        return super().find_class(module, name)


def read_pickle(path: Path, *, allow: Iterable[tuple[str, str]] = ()) -> Any:
    """Read a pickle of containers and arrays; refuse one that names anything else.

    ``allow`` adds (module, name) pairs for one known layout.
    """
    try:
        handle = path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"no file {path}", fix="check the path") from None
    with handle:
        return load_pickle(handle, path, allow=allow)


def load_pickle(
    handle: IO[bytes],
    name: str | Path,
    *,
    allow: Iterable[tuple[str, str]] = (),
    stand_ins: Mapping[tuple[str, str], Any] | None = None,
) -> Any:
    """:func:`read_pickle` from an open file; ``name`` is what messages call it.

    ``stand_ins``  what to use in place of a (module, name), such as a plain record for a data frame:
                   then neither that library's code nor the library itself is needed
    """
    try:
        return _Restricted(handle, _PLAIN | frozenset(allow), stand_ins or {}).load()
    except Exception as error:  # a hostile pickle can raise anything; nothing of it was run
        raise BadFile(
            name,
            f"refused as a pickle ({error})",
            fix="only plain containers and arrays are read; export the data as JSON or Parquet",
        ) from None
