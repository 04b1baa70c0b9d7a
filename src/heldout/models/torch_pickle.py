"""State dicts that torch wrote, read as NumPy arrays without torch and without running anything.

Both layouts of ``torch.save`` are read: the zip file of today and the older stream of pickles. Of
the pickle inside, only plain containers, ``OrderedDict`` and the functions that rebuild a tensor
are known, and these are ours, not torch's. The opcodes are looked through before the first of
them is executed. Every tensor is checked to lie inside its storage.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from heldout.errors import BadFile, NotFound

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_LONGEST_PICKLE = 64 << 20
_STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "BFloat16Storage": "bf16",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
# What a state dict is made of. INST, OBJ, NEWOBJ, EXT and the rest of pickle's machinery are not.
_OPCODE_NAMES = """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE
    SHORT_BINUNICODE EMPTY_DICT SETITEM SETITEMS EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1
    TUPLE2 TUPLE3 BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL REDUCE BUILD
    BINPERSID
"""
_OPCODES = frozenset(_OPCODE_NAMES.split())


class _Refused(Exception):
    """Why a file is not read; turned into a :class:`BadFile` that names the file."""


# Plain tuples and objects without attributes: pickle's BUILD cannot change one after its check.
class _StorageType(NamedTuple):
    """A name such as ``torch.FloatStorage``: which numbers a storage holds. Nothing to call."""

    dtype: str

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype("<u2" if self.dtype == "bf16" else f"<{self.dtype}")


class _Storage(NamedTuple):
    key: str
    type: _StorageType
    length: int


class _Tensor(NamedTuple):
    """A tensor before its storage has been read."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file written by ``torch.save(model.state_dict(), path)``, by name, in order.

    bfloat16 comes as float32, which holds it exactly; everything else in its own type. Files whose
    pickle holds anything but a flat mapping of names to tensors are refused.
    """
    try:
        with path.open("rb") as handle:
            tensors, buffers = _read_zip(handle) if _is_zip(handle) else _read_legacy(handle)
            return {name: _array(tensor, buffers, name) for name, tensor in tensors.items()}
    except FileNotFoundError:
        raise NotFound(f"no file {path}", fix="check the path") from None
    except _Refused as error:
        reason = str(error)
    except Exception as error:  # a hostile file can raise anything; nothing of it was run
        reason = f"{type(error).__name__}: {error}"
    raise BadFile(
        path,
        f"not read as a state dict of torch ({reason})",
        fix="save it with torch.save(model.state_dict(), path)",
    )


def _is_zip(handle: IO[bytes]) -> bool:
    head = handle.read(4)
    handle.seek(0)
    return head == b"PK\x03\x04"


def _read_zip(handle: IO[bytes]) -> tuple[dict[str, _Tensor], dict[str, np.ndarray]]:
    with zipfile.ZipFile(handle) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise _Refused("a zip file without one data.pkl")
        folder = names[0].removesuffix("data.pkl")
        if archive.getinfo(names[0]).file_size > _LONGEST_PICKLE:
            raise _Refused("its pickle is too long")
        order = f"{folder}byteorder"
        if order in archive.namelist() and _entry(archive, order, 6) != b"little":
            raise _Refused("its numbers are not little-endian")
        found, storages = _load_tensors(io.BytesIO(archive.read(names[0])))
        buffers = {}
        for key, storage in storages.items():
            size = storage.length * storage.type.numpy.itemsize
            buffers[key] = np.frombuffer(
                _entry(archive, f"{folder}data/{key}", size), storage.type.numpy
            )
    return found, buffers


def _entry(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    """An entry of a known size, as torch writes it: not compressed, so no bomb is ever inflated."""
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED:
        raise _Refused(f"{name} is compressed")
    if entry.file_size != size or entry.compress_size != size:
        raise _Refused(f"{name} has {entry.file_size} bytes instead of {size}")
    return archive.read(name)


def _read_legacy(handle: IO[bytes]) -> tuple[dict[str, _Tensor], dict[str, np.ndarray]]:
    """Magic, protocol, machine, object, list of storages; then length and bytes of each storage."""
    if _load(handle) != _MAGIC or _load(handle) != _PROTOCOL:
        raise _Refused("it lacks torch's mark")
    machine = _load(handle)
    if not isinstance(machine, Mapping) or machine.get("little_endian") is not True:
        raise _Refused("its numbers are not little-endian")
    found, storages = _load_tensors(handle)
    keys = _load(handle)
    if not isinstance(keys, list) or set(map(str, keys)) != set(storages):
        raise _Refused("its list of storages does not fit its tensors")
    start = handle.tell()
    buffers = {}
    end = handle.seek(0, io.SEEK_END)
    handle.seek(start)
    for key in map(str, keys):
        storage = storages[key]
        length = int.from_bytes(handle.read(8), "little")
        if length != storage.length:
            raise _Refused(f"a storage has {length} numbers instead of {storage.length}")
        size = length * storage.type.numpy.itemsize
        if handle.tell() + size > end:
            raise _Refused("it is cut short")
        buffers[key] = np.frombuffer(handle.read(size), storage.type.numpy)
    return found, buffers


def _load_tensors(handle: IO[bytes]) -> tuple[dict[str, _Tensor], dict[str, _Storage]]:
    storages: dict[str, _Storage] = {}
    value = _load(handle, storages)
    if not isinstance(value, dict) or not len(value):
        raise _Refused("it holds no mapping of names to tensors")
    found = dict(
        dict.items(value)
    )  # not value.items: an OrderedDict may carry an attribute so named
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise _Refused(f"its entry {str(name)[:60]!r} is no tensor")
    return found, storages


def _load(handle: IO[bytes], storages: dict[str, _Storage] | None = None) -> Any:
    """One pickle of the stream, its opcodes looked through first."""
    start = handle.tell()
    for opcode, argument, position in pickletools.genops(handle):
        if opcode.name not in _OPCODES:
            raise _Refused(f"its pickle uses {opcode.name}")
        # A memo index far beyond the pickle would only be there to take memory.
        if isinstance(argument, int) and "PUT" in opcode.name and argument > _LONGEST_PICKLE // 8:
            raise _Refused("its pickle uses a huge memo")
        if position is not None and position - start > _LONGEST_PICKLE:
            raise _Refused("its pickle is too long")
    stop = handle.tell()
    handle.seek(start)
    return _Reader(io.BytesIO(handle.read(stop - start)), storages).load()


class _Reader(pickle.Unpickler):
    def __init__(self, file: IO[bytes], storages: dict[str, _Storage] | None) -> None:
        super().__init__(file, encoding="utf-8")
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if self._storages is not None:
            if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
                return _RebuildTensor()
            if (module, name) == ("torch._utils", "_rebuild_parameter"):
                return _RebuildParameter()
            if module == "torch" and name in _STORAGES:
                return _StorageType(_STORAGES[name])
        raise _Refused(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        if self._storages is None or not isinstance(pid, tuple) or len(pid) not in (5, 6):
            raise _Refused("it refers to something outside")
        kind, storage_type, key, _location, length = pid[:5]
        if kind != "storage" or not isinstance(storage_type, _StorageType):
            raise _Refused("it refers to something that is no storage")
        if len(pid) == 6 and pid[5] is not None:
            raise _Refused("it uses views of storages")
        if not isinstance(key, str) or not _whole(length):
            raise _Refused("one of its storages has no length")
        storage = _Storage(key, storage_type, length)
        if self._storages.setdefault(key, storage) != storage:
            raise _Refused("one of its storages is described in two ways")
        return storage


class _RebuildTensor:
    """Stands for torch's function: makes a tensor of ours, or refuses."""

    __slots__ = ()

    def __call__(
        self, storage: Any, offset: Any, shape: Any, strides: Any, *_flags_and_hooks: Any
    ) -> _Tensor:
        if not isinstance(storage, _Storage):
            raise _Refused("a tensor has no storage")
        if not isinstance(shape, tuple) or not isinstance(strides, tuple):
            raise _Refused("a tensor has no shape")
        if len(shape) != len(strides) or not all(map(_whole, (offset, *shape, *strides))):
            raise _Refused("a tensor has a shape that is none")
        return _Tensor(storage, offset, shape, strides)


class _RebuildParameter:
    """Stands for torch's function: a parameter is its tensor."""

    __slots__ = ()

    def __call__(self, data: Any, *_flags_and_hooks: Any) -> _Tensor:
        if not isinstance(data, _Tensor):
            raise _Refused("a parameter holds no tensor")
        return data


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40


def _array(tensor: _Tensor, buffers: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """A copy of the tensor's numbers, after checking that all of them are inside its storage."""
    flat = buffers[tensor.storage.key]
    count = int(np.prod(tensor.shape, dtype=object)) if tensor.shape else 1
    steps = zip(tensor.shape, tensor.strides, strict=True)
    last = tensor.offset + sum((n - 1) * step for n, step in steps)
    # More numbers than the storage has would mean overlaps: a small file that becomes a huge array.
    if count > len(flat) or (count and last >= len(flat)):
        raise _Refused(f"tensor {name[:60]!r} reaches beyond its storage")
    if count == 0:
        return np.zeros(tensor.shape, _made(flat[:0], tensor).dtype)
    size = flat.itemsize
    view = np.lib.stride_tricks.as_strided(
        flat[tensor.offset :], tensor.shape, [step * size for step in tensor.strides]
    )
    return _made(np.array(view), tensor)


def _made(values: np.ndarray, tensor: _Tensor) -> np.ndarray:
    if tensor.storage.type.dtype == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values
