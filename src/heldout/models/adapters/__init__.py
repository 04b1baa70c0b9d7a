"""Models: one small protocol, the adapters that speak it, and names for all of them.

Importing this imports neither torch nor ONNX Runtime; an adapter does when it loads a model.
"""

from heldout.models.adapters.answers import finite_rows
from heldout.models.adapters.encoder import Encoder
from heldout.models.adapters.encoders import load_encoder
from heldout.models.adapters.function import FunctionModel, classifier
from heldout.models.adapters.model import Answer, Model
from heldout.models.adapters.registry import (
    PredictionFile,
    expand,
    list_models,
    load_model,
    load_models,
    parse_model_args,
)
from heldout.models.adapters.sidecar import Sidecar, read_sidecar
from heldout.models.adapters.values import model_input

__all__ = [
    "Answer",
    "Encoder",
    "FunctionModel",
    "Model",
    "PredictionFile",
    "Sidecar",
    "classifier",
    "expand",
    "finite_rows",
    "list_models",
    "load_encoder",
    "load_model",
    "load_models",
    "model_input",
    "parse_model_args",
    "read_sidecar",
]
