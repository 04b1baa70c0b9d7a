"""``onnx:model.onnx``: any classifier exported to ONNX, run by ONNX Runtime on the CPU.

A sidecar beside the file states label space and preprocessing; see ``docs/models.md``.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import MismatchError, UserError
from heldout.core.files import existing_file
from heldout.data.images.preprocessing import Preprocessing
from heldout.models.adapters.answers import made_answer
from heldout.models.adapters.micro_batch import MICRO_BATCH, in_micro_batches, rows_are_independent
from heldout.models.adapters.model import Answer
from heldout.models.adapters.onnx_session import Port, Session, chosen
from heldout.models.adapters.onnx_weights import weights_hash
from heldout.models.adapters.sidecar import Sidecar, example_sidecar, find_sidecar, read_sidecar
from heldout.models.adapters.trying import check_answer, made_up_pixels
from heldout.models.adapters.values import model_input, passes_unchanged


class OnnxModel:
    """An ONNX graph as a model; safe to call from several threads.

    Every call is cut into micro-batches of one fixed size, so that the outputs of an image are
    the same to the bit whatever batch it came in. On the first call it is tried that they do not
    depend on the image's place and neighbours either. A graph in which they do (dynamic
    quantisation takes its scale from the whole batch) is run one image at a time.

    ``identity`` holds what the outputs come from: the weights and which inputs and outputs are
    used. The version of ONNX Runtime can move the last bits of a logit; it is recorded with the
    run and is not part of the identity, so that an upgrade does not throw predictions away.
    """

    device = "cpu"

    def __init__(
        self,
        session: Session,
        sidecar: Sidecar,
        *,
        name: str,
        identity: Mapping[str, Any],
        where: str | None = None,
    ) -> None:
        self.name = name
        self.label_space = sidecar.label_space
        self.preprocessing: Preprocessing = sidecar.preprocessing
        self._session = session
        self._sidecar = sidecar
        self._where = where or name
        self._input = chosen(
            session.inputs, sidecar.input, usual="input", role="input", where=self._where
        )
        if len(session.inputs) > 1:
            raise UserError(
                f"{self._where} needs {len(session.inputs)} inputs",
                fix="export it with images only",
            )
        outputs = session.outputs
        output = chosen(outputs, sidecar.output, usual="logits", role="output", where=self._where)
        self._outputs = [output.name]
        self.identity: Mapping[str, Any] = {
            **identity,
            "output": output.name,
            "outputs": sidecar.outputs,
            "features": sidecar.features,
        }
        if sidecar.features is not None:
            features = chosen(
                outputs, sidecar.features, usual="features", role="features", where=self._where
            )
            self._outputs.append(features.name)
        self._check_input(self._input)
        self._micro_batch = self._input.shape[0] or MICRO_BATCH
        self._tried = False
        self._lock = threading.Lock()
        self._check_output()

    @property
    def runtime(self) -> dict[str, Any]:
        """What ran it, for the record of a run."""
        return {"onnxruntime": self._session.version, "micro_batch": self._micro_batch}

    def __call__(self, pixels: np.ndarray) -> Answer:
        """Logits, and features where the sidecar names them, of uint8 pixels (b, h, w, 3)."""
        if not self._tried:
            self._try_rows()
        found = in_micro_batches(self._run, self._values(pixels), self._micro_batch)
        return self._answer(found, len(pixels))

    def with_preprocessing(self, preprocessing: Preprocessing) -> OnnxModel:
        """The same graph behind another preprocessing; what the graph cannot take is refused."""
        made = copy.copy(self)
        made.preprocessing = preprocessing
        made._sidecar = replace(self._sidecar, preprocessing=made.preprocessing)
        made._check_input(self._input)
        return made

    def _values(self, pixels: np.ndarray) -> np.ndarray:
        return model_input(pixels, self.preprocessing).astype(self._input.dtype, copy=False)

    def _run(self, inputs: np.ndarray) -> list[np.ndarray]:
        return self._session.run(inputs, input=self._input.name, outputs=self._outputs)

    def _answer(self, found: list[np.ndarray], rows: int) -> Answer:
        return made_answer(
            *found,
            rows=rows,
            classes=len(self.label_space),
            model=self._where,
            outputs=self._sidecar.outputs,
        )

    def _check_input(self, port: Port) -> None:
        if port.dtype not in ("float32", "float16", "uint8") or len(port.shape) != 4:
            raise UserError(
                f"{self._where} takes {port}", fix="export it for images: float32 (n, 3, h, w)"
            )
        if port.dtype == "uint8" and not passes_unchanged(self.preprocessing):
            raise MismatchError(
                f"{self._where} takes bytes, its sidecar states scale, mean or std",
                fix='state "scale": 1, "mean": [0, 0, 0], "std": [1, 1, 1]',
            )
        geometry, layout = self.preprocessing.geometry, self.preprocessing.layout
        channels, *sides = port.shape[1:] if layout == "NCHW" else (port.shape[3], *port.shape[1:3])
        if channels not in (None, 3):
            raise MismatchError(
                f"{self._where} takes {port}, its sidecar states layout {layout}",
                fix=f"state {'NHWC' if layout == 'NCHW' else 'NCHW'}"
                if 3 in (port.shape[1], port.shape[3])
                else "export it for 3 colours",
            )
        stated = (geometry.crop_height, geometry.crop_width)
        if any(n not in (None, want) for n, want in zip(sides, stated, strict=True)):
            raise MismatchError(
                f"{self._where} takes images of {sides[0]} × {sides[1]}, "
                f"its sidecar states {stated[0]} × {stated[1]}",
                fix="correct crop_height and crop_width",
            )

    def _check_output(self) -> None:
        """One run on made-up images, so that what cannot work is said before anything starts."""
        rows = self._input.shape[0] or 1
        try:
            found = self._run(self._values(made_up_pixels(self.preprocessing, rows)))
        except Exception as error:  # the runtime has classes of its own for what a layer refuses
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"{self._where} cannot run on images of its preprocessing ({reason})",
                fix="check the input size in its sidecar, or export the model again",
            ) from None
        check_answer(
            self._answer(found, rows),
            self._where,
            self._sidecar.outputs,
            fix='state "outputs": "probabilities" in its sidecar',
        )

    def _try_rows(self) -> None:
        with self._lock:
            if self._tried:
                return
            inputs = self._values(made_up_pixels(self.preprocessing, self._micro_batch))
            if not rows_are_independent(self._run, inputs):
                if self._input.shape[0] is not None:
                    raise UserError(
                        f"outputs of {self._where} for one image depend on the others of its batch",
                        fix="export it with a batch of 1 or of any size",
                    )
                self._micro_batch = 1
            self._tried = True


def load(path: str, *, name: str | None = None, sidecar: str | None = None) -> OnnxModel:
    """The model of an ONNX file; ``sidecar`` names another JSON file than the one beside it."""
    file = existing_file(Path(path), "ONNX file")
    session = Session(file, purpose="an ONNX model")
    stated = read_sidecar(Path(sidecar) if sidecar else find_sidecar(file, _example(session)))
    made = name or stated.name or file.stem
    identity = {"adapter": "onnx", "weights": weights_hash(file)}
    return OnnxModel(session, stated, name=made, identity=identity, where=str(file))


def _example(session: Session) -> str:
    """A sidecar with the sizes that the graph states, or 224 and 1,000 where it leaves them open."""
    shape = session.inputs[0].shape if session.inputs else ()
    layout, sides = "NCHW", shape[2:4]
    if len(shape) == 4 and shape[1] != 3 and shape[3] == 3:
        layout, sides = "NHWC", shape[1:3]
    height, width = (*(n or 224 for n in sides), 224, 224)[:2]
    classes = next((p.shape[1] for p in session.outputs if len(p.shape) == 2), None)
    return example_sidecar(height=height, width=width, classes=classes, layout=layout)
