"""A published state dict of torch, read as NumPy arrays without torch.

Only for files whose SHA-256 was compared before: the older layout of ``torch.save``, a stream of
pickles and then the numbers of each storage. Of the pickles, only ``OrderedDict`` and what a tensor
is made of are known, and these are ours, not torch's; any other name is refused.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heldout.core.errors import BadFile

_MAGIC = 0x1950A86A20F9469CFC6C
_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype[Any]


class _Tensor(NamedTuple):
    """A tensor before its storage has been read."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def rebuilt(cls, *arguments: Any) -> _Tensor:
        return cls(*arguments[:4])  # not whether it wants a gradient, and its hooks


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor.rebuilt
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        return _Storage(key, dtype)


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file written by ``torch.save(model.state_dict(), path)``, by name, in order."""
    with path.open("rb") as handle:
        try:
            magic, _version, _machine, tensors, keys = (_Reader(handle).load() for _ in range(5))
        except (pickle.UnpicklingError, EOFError) as error:
            magic, reason = None, str(error)
        else:
            reason = "it lacks torch's mark"
        if magic != _MAGIC:
            raise BadFile(
                path,
                f"not read as a state dict of torch ({reason})",
                fix="install the package of the weights again",
            )
        types = {tensor.storage.key: tensor.storage.dtype for tensor in tensors.values()}
        storages = {}
        for key in keys:
            length = int.from_bytes(handle.read(8), "little")
            storages[key] = np.frombuffer(handle.read(length * types[key].itemsize), types[key])
    return {name: _array(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}


def _array(tensor: _Tensor, storage: np.ndarray) -> np.ndarray:
    """A copy of the tensor's numbers."""
    return np.ndarray(
        tensor.shape,
        storage.dtype,
        storage,
        tensor.offset * storage.itemsize,
        [step * storage.itemsize for step in tensor.strides],
    ).copy()
