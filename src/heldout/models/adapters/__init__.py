"""Models: one small protocol, the adapters that speak it, and names for all of them.

Importing this imports neither torch nor ONNX Runtime; an adapter does when it loads a model.
"""

from heldout.models.adapters.model import Encoder, Model, ModelOutput, finite_rows, model_input
from heldout.models.adapters.registry import (
    PredictionFile,
    expand,
    list_models,
    load_encoder,
    load_model,
    load_models,
    parse_model_args,
)
from heldout.models.adapters.user_code import FunctionModel, classifier

__all__ = [
    "Encoder",
    "FunctionModel",
    "Model",
    "ModelOutput",
    "PredictionFile",
    "classifier",
    "expand",
    "finite_rows",
    "list_models",
    "load_encoder",
    "load_model",
    "load_models",
    "model_input",
    "parse_model_args",
]
