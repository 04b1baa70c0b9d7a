"""``onnx:model.onnx``: any classifier exported to ONNX, run by ONNX Runtime on the CPU.

A sidecar beside the file states label space and preprocessing; see ``docs/models.md``. An ONNX file
or a Python function does not say which pixels it was trained on or what its outputs mean. A wrong
guess costs accuracy without any error, so nothing that matters has a default in a sidecar.
"""

from __future__ import annotations

import copy
import json
import mmap
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from heldout.core import schema
from heldout.core.errors import BadFile, MismatchError, NotFound, UserError
from heldout.core.extras import require
from heldout.core.files import canonical_json, existing_file, sha256_file, sha256_text
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import BUILT_IN
from heldout.models.adapters.model import (
    ModelOutput,
    Outputs,
    check_output,
    made_up_pixels,
    model_input,
    model_output,
)

MICRO_BATCH = 4
"""Measured with ONNX Runtime on EfficientNet-Lite0: 1 to 16 cost the same time within 7 percent, 4
the least of it; memory for activations grows with the size."""
_NEEDED = ("resize", "interpolation", "crop_height", "crop_width", "scale", "mean", "std")
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(uint8)": "uint8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
}
# An entry of a tensor's external data: the key "location", then a value of up to 16,383 bytes.
_LOCATION = re.compile(rb"\n\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])")

Run = Callable[[np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Port:
    """An input or output of a graph; None stands for a dimension that may vary."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} ({', '.join('?' if n is None else str(n) for n in self.shape)})"


class Session:
    """A graph ready to run. ``run`` may be called from several threads at once.

    One thread per session, run to the end without waiting in a loop: the workers of a prediction
    job call one session at once, so cores are used by images and not inside a layer, and an idle
    worker costs nothing. The memory arena stays on: without it each run asks the system for its
    activations again, which cost 20 to 30 percent with batches of 8 or more.
    """

    def __init__(self, graph: Path | bytes, *, extra: str = "onnx", purpose: str) -> None:
        runtime: Any = require("onnxruntime", extra=extra, purpose=purpose)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.log_severity_level = 3  # errors come as exceptions; warnings are of no use here
        source = graph if isinstance(graph, bytes) else str(graph)
        try:
            self._session = runtime.InferenceSession(
                source, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the runtime has a dozen classes of its own for a bad graph
            raise BadFile(
                "graph" if isinstance(graph, bytes) else graph,
                f"ONNX Runtime {runtime.__version__} cannot open it ({reason(error)})",
                fix="export the model again, or upgrade onnxruntime",
            ) from None
        self.version: str = runtime.__version__
        self.inputs = tuple(map(_port, self._session.get_inputs()))
        self.outputs = tuple(map(_port, self._session.get_outputs()))

    def run(self, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
        """The named outputs for one batch, whose inputs are given by name."""
        made: list[np.ndarray] = self._session.run(list(outputs), dict(inputs))
        return made


def reason(error: Exception) -> str:
    """The message of a runtime's exception on one line, shortened."""
    return " ".join(str(error).split())[:300]


def _port(node: Any) -> Port:
    shape = tuple(n if isinstance(n, int) and n > 0 else None for n in node.shape or ())
    return Port(node.name, _DTYPES.get(node.type, node.type), shape)


def weights_hash(path: Path) -> str:
    """SHA-256 of the graph's file, or over the hashes of it and of all files that it refers to.

    A large graph may keep its weights in other files beside it ("external data"); a hash of the
    ``.onnx`` file alone would then be the same for two checkpoints.
    """
    own = sha256_file(path)
    others = external_files(path)
    if not others:
        return own
    hashes = [[name, sha256_file(path.parent / name)] for name in others]
    return sha256_text(canonical_json([own, *hashes]))


def external_files(path: Path) -> tuple[str, ...]:
    """Names of the files with external data, relative to the graph's folder, sorted."""
    if path.stat().st_size == 0:
        raise BadFile(path, "is empty", fix="export the model again")
    found = set()
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for entry in _LOCATION.finditer(data):
            low, high = entry[1][0] & 0x7F, entry[1][-1] if len(entry[1]) > 1 else 0
            found.add(data[entry.end() : entry.end() + low + 128 * high].decode("utf-8", "replace"))
    for name in found:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or "\\" in name:
            raise BadFile(path, f"refers to {name!r}", fix="keep its weights in its own folder")
        if not (path.parent / name).is_file():
            raise NotFound(f"{path} keeps weights in {name!r}, which is not there", fix="add it")
    return tuple(sorted(found))


def in_micro_batches(run: Run, inputs: np.ndarray, size: int) -> list[np.ndarray]:
    """The outputs of ``run`` on ``inputs`` (b, ...), each (b, ...), run ``size`` rows at a time.

    A kernel may add in another order when the batch has another size, and then the last bits of a
    logit change. So whatever batch comes in is cut into micro-batches of one size, the last filled
    up with zeros: an image's outputs never depend on how images were grouped.
    """
    parts: list[list[np.ndarray]] = []
    for start in range(0, max(len(inputs), 1), size):
        chunk = inputs[start : start + size]
        rows = len(chunk)
        if rows < size:
            filled = np.zeros((size, *inputs.shape[1:]), inputs.dtype)
            filled[:rows] = chunk
            chunk = filled
        parts.append([output[:rows] for output in run(chunk)])
    return (
        parts[0] if len(parts) == 1 else [np.concatenate(each) for each in zip(*parts, strict=True)]
    )


def rows_are_independent(run: Run, inputs: np.ndarray) -> bool:
    """Whether outputs of a row stay the same, to the bit, in other places and beside other rows.

    ``inputs`` is one micro-batch of varied images. Each is tried in the next place; the first is
    also tried in the last place, beside zeros and beside louder copies of itself, so that a
    largest, least or mean value taken over the batch must differ. Four runs.
    """
    if len(inputs) == 1:
        return True
    quiet = np.zeros_like(inputs)
    loud = np.repeat(inputs[:1] * inputs.dtype.type(3), len(inputs), axis=0)
    quiet[-1] = loud[-1] = inputs[0]
    plain, turned = run(inputs), run(np.roll(inputs, 1, axis=0))
    return all(
        np.array_equal(one, other, equal_nan=True)
        for a, b, c, d in zip(plain, turned, run(quiet), run(loud), strict=True)
        for one, other in ((np.roll(a, 1, axis=0), b), (a[0], c[-1]), (a[0], d[-1]))
    )


class Sidecar(schema.Document, frozen=True, kw_only=True):
    """The JSON beside a graph or a Python file.

    ``output``, ``features``  names in the graph, where it has several
    ``files``  for a function: the files, relative to its own, that its outputs depend on
    """

    schema_version: int = 1
    label_space: str
    preprocessing: dict[str, Any]
    name: str | None = None
    output: str | None = None
    features: str | None = None
    outputs: Outputs = "logits"
    files: tuple[str, ...] | None = None


def read_sidecar(model: Path) -> tuple[Sidecar, LabelSpace, Preprocessing] | None:
    """What is stated beside a model's file, in ``<stem>.json`` or ``model.json``, with its label
    space and preprocessing read; None without one."""
    paths = (model.with_suffix(".json"), model.parent / "model.json")
    path = next((beside for beside in paths if beside.is_file()), None)
    if path is None:
        return None
    stated = schema.read(path, Sidecar, fix=f"write it as {example_sidecar()}")
    return (
        stated,
        _label_space(path, stated.label_space),
        _preprocessing(path, stated.preprocessing),
    )


def example_sidecar() -> str:
    """A complete sidecar on one line, to be corrected by hand.

    >>> json.loads(example_sidecar())["label_space"]
    'imagenet-1k'
    """
    geometry = Geometry(resize_height=256, crop_height=224, crop_width=224)
    stated = {
        "schema_version": 1,
        "label_space": "imagenet-1k",
        "preprocessing": Preprocessing(geometry=geometry).to_dict(),
    }
    return json.dumps(stated)


def _label_space(path: Path, text: str) -> LabelSpace:
    """The label space that a sidecar states: a built-in name, or a file beside it."""
    if text in BUILT_IN:
        return LabelSpace.load(text)
    if not text.endswith(".json"):
        raise BadFile(
            path,
            f"no label space named {text!r}",
            fix=f"use a JSON file or one of {', '.join(BUILT_IN)}",
        )
    return LabelSpace.read(path.parent / text)


def _preprocessing(path: Path, value: dict[str, Any]) -> Preprocessing:
    """The preprocessing that a sidecar states; all that matters must be stated."""
    sizes = {"shorter": ["resize_height"], "exact": ["resize_height", "resize_width"]}
    needed = [*_NEEDED, *sizes.get(str(value.get("resize")), [])]
    missing = [key for key in needed if key not in value]
    if missing:
        raise BadFile(
            path,
            f"its preprocessing does not state {', '.join(missing)}",
            fix="add what the model was trained with; a wrong guess costs accuracy silently",
        )
    try:
        return Preprocessing.from_dict(value)
    except UserError as error:
        raise BadFile(path, error.message, fix=error.fix) from None
    except (TypeError, ValueError) as error:
        raise BadFile(
            path, f"its preprocessing cannot be read ({error})", fix="correct it"
        ) from None


class OnnxModel:
    """An ONNX graph as a model; safe to call from several threads.

    Every call is cut into micro-batches of one fixed size, so that the outputs of an image are
    the same to the bit whatever batch it came in. On the first call it is tried that they do not
    depend on the image's place and neighbours either. A graph in which they do (dynamic
    quantisation takes its scale from the whole batch) is run one image at a time.

    ``identity`` holds what the outputs come from: the weights and which inputs and outputs are
    used. The version of ONNX Runtime can change the last bits of a logit; it is recorded with the
    run and is not part of the identity, so that an upgrade does not throw predictions away.
    """

    device = "cpu"

    def __init__(
        self,
        session: Session,
        *,
        name: str,
        label_space: LabelSpace,
        preprocessing: Preprocessing,
        identity: Mapping[str, Any],
        output: str | None = None,
        features: str | None = None,
        outputs: Outputs = "logits",
        where: str | None = None,
    ) -> None:
        self.name = name
        self.label_space = label_space
        self.preprocessing: Preprocessing = preprocessing
        self._session, self._kind = session, outputs
        self._where = where or name
        if len(session.inputs) != 1:
            raise UserError(
                f"{self._where} needs {len(session.inputs)} inputs",
                fix="export it with images only",
            )
        self._input = session.inputs[0]
        self._outputs = [self._port(output, "output")]
        self.identity: Mapping[str, Any] = {
            **identity,
            "output": self._outputs[0],
            "outputs": outputs,
            "features": features,
        }
        if features is not None:
            self._outputs.append(self._port(features, "features"))
        self._check_input()
        self.micro_batch = self._input.shape[0] or MICRO_BATCH
        self._tried = False
        self._lock = threading.Lock()
        self._check_output()

    def _port(self, name: str | None, role: str) -> str:
        """The output of this name; without a name the only one, or ``logits``."""
        names = [port.name for port in self._session.outputs]
        if name is None:
            if len(names) != 1 and "logits" not in names:
                raise UserError(
                    f"{self._where} has {len(names)} outputs: {', '.join(names)}",
                    fix=f'say which in its sidecar, such as "{role}": "{names[0]}"',
                )
            name = names[0] if len(names) == 1 else "logits"
        if name not in names:
            raise UserError(
                f"{self._where} has no {role} {name!r}", fix=f"it has {', '.join(names)}"
            )
        return name

    def __call__(self, pixels: np.ndarray) -> ModelOutput:
        """Logits, and features where the sidecar names them, of uint8 pixels (b, h, w, 3)."""
        if not self._tried:
            self._try_rows()
        found = in_micro_batches(self._run, self._values(pixels), self.micro_batch)
        return self._output(found, len(pixels))

    def with_preprocessing(self, preprocessing: Preprocessing) -> OnnxModel:
        """The same graph behind another preprocessing; what the graph cannot take is refused."""
        made = copy.copy(self)
        made.preprocessing = preprocessing
        made._check_input()
        return made

    def _values(self, pixels: np.ndarray) -> np.ndarray:
        return model_input(pixels, self.preprocessing).astype(self._input.dtype, copy=False)

    def _run(self, inputs: np.ndarray) -> list[np.ndarray]:
        return self._session.run({self._input.name: inputs}, self._outputs)

    def _output(self, found: list[np.ndarray], rows: int) -> ModelOutput:
        return model_output(
            *found,
            rows=rows,
            classes=len(self.label_space),
            model=self._where,
            outputs=self._kind,
        )

    def _check_input(self) -> None:
        port, preprocessing = self._input, self.preprocessing
        if port.dtype not in ("float32", "float16", "uint8") or len(port.shape) != 4:
            raise UserError(
                f"{self._where} takes {port}", fix="export it for images: float32 (n, 3, h, w)"
            )
        values = (preprocessing.scale, *preprocessing.mean, *preprocessing.std)
        if port.dtype == "uint8" and values != (1, 0, 0, 0, 1, 1, 1):
            raise MismatchError(
                f"{self._where} takes bytes, its sidecar states scale, mean or std",
                fix='state "scale": 1, "mean": [0, 0, 0], "std": [1, 1, 1]',
            )
        geometry, layout = preprocessing.geometry, preprocessing.layout
        sides = (geometry.crop_height, geometry.crop_width)
        stated = (3, *sides) if layout == "NCHW" else (*sides, 3)
        if any(n not in (None, want) for n, want in zip(port.shape[1:], stated, strict=True)):
            raise MismatchError(
                f"{self._where} takes {port}, its sidecar states {layout} with {sides[0]} × {sides[1]}",
                fix="correct layout, crop_height and crop_width, or export it for 3 colours",
            )

    def _check_output(self) -> None:
        """One run on made-up images, so that what cannot work is said before anything starts."""
        rows = self._input.shape[0] or 1
        try:
            found = self._run(self._values(made_up_pixels(self.preprocessing, rows)))
        except Exception as error:  # the runtime has classes of its own for what a layer refuses
            raise UserError(
                f"{self._where} cannot run on images of its preprocessing ({reason(error)})",
                fix="check the input size in its sidecar, or export the model again",
            ) from None
        check_output(
            self._output(found, rows),
            self._where,
            self._kind,
            fix='state "outputs": "probabilities" in its sidecar',
        )

    def _try_rows(self) -> None:
        with self._lock:
            if self._tried:
                return
            inputs = self._values(made_up_pixels(self.preprocessing, self.micro_batch))
            if not rows_are_independent(self._run, inputs):
                if self._input.shape[0] is not None:
                    raise UserError(
                        f"outputs of {self._where} for one image depend on the others of its batch",
                        fix="export it with a batch of 1 or of any size",
                    )
                self.micro_batch = 1
            self._tried = True


def load(path: str) -> OnnxModel:
    """The model of an ONNX file with a sidecar beside it."""
    file = existing_file(Path(path), "ONNX file")
    session = Session(file, purpose="an ONNX model")
    sidecar = read_sidecar(file)
    if sidecar is None:
        raise NotFound(
            f"{file} has no sidecar that states its label space and preprocessing",
            fix=f"write {file.with_suffix('.json').name} beside it, with the values that it was "
            f"trained with, such as {example_sidecar()}",
        )
    stated, label_space, preprocessing = sidecar
    return OnnxModel(
        session,
        name=stated.name or file.stem,
        label_space=label_space,
        preprocessing=preprocessing,
        identity={"adapter": "onnx", "weights": weights_hash(file)},
        output=stated.output,
        features=stated.features,
        outputs=stated.outputs,
        where=str(file),
    )
