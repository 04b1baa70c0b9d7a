"""Opening ONNX graphs with ONNX Runtime: settings, and what a graph takes and gives.

One thread a session, run to the end without waiting in a loop: the workers of a prediction job
call one session at once, so cores are used by images and not inside a layer, and an idle worker
costs nothing. The memory arena stays on: without it each run asks the system for its activations
again, which cost 20 to 30 percent with batches of 8 or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, UserError
from heldout.core.extras import require

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(uint8)": "uint8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
}


@dataclass(frozen=True)
class Port:
    """An input or output of a graph; None stands for a dimension that may vary."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} ({', '.join('?' if n is None else str(n) for n in self.shape)})"


class Session:
    """A graph ready to run. ``run`` may be called from several threads at once."""

    def __init__(self, graph: Path | bytes, *, extra: str = "onnx", purpose: str) -> None:
        runtime: Any = require("onnxruntime", extra=extra, purpose=purpose)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
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
            reason = " ".join(str(error).split())[:300]
            raise BadFile(
                "graph" if isinstance(graph, bytes) else graph,
                f"ONNX Runtime {runtime.__version__} cannot open it ({reason})",
                fix="export the model again, or upgrade onnxruntime",
            ) from None
        self.version: str = runtime.__version__
        self.inputs = tuple(map(_port, self._session.get_inputs()))
        self.outputs = tuple(map(_port, self._session.get_outputs()))

    def run(self, inputs: np.ndarray, *, input: str, outputs: Sequence[str]) -> list[np.ndarray]:
        """The named outputs for one batch."""
        return self.feed({input: inputs}, outputs=outputs)

    def feed(self, inputs: Mapping[str, np.ndarray], *, outputs: Sequence[str]) -> list[np.ndarray]:
        """The named outputs of a graph with several inputs, by their names."""
        made: list[np.ndarray] = self._session.run(list(outputs), dict(inputs))
        return made


def _port(node: Any) -> Port:
    shape = tuple(n if isinstance(n, int) and n > 0 else None for n in node.shape or ())
    return Port(node.name, _DTYPES.get(node.type, node.type), shape)


def chosen(ports: Sequence[Port], name: str | None, *, usual: str, role: str, where: str) -> Port:
    """The port of this name; without a name the only one, or the one with the usual name."""
    names = [port.name for port in ports]
    if name is None:
        if len(ports) != 1 and usual not in names:
            raise UserError(
                f"{where} has {len(ports)} {role}s: {', '.join(names)}",
                fix=f'say which in its sidecar, such as "{role}": "{names[0] if names else usual}"',
            )
        name = names[0] if len(ports) == 1 else usual
    if name not in names:
        raise UserError(f"{where} has no {role} {name!r}", fix=f"it has {', '.join(names)}")
    return ports[names.index(name)]
