"""Prediction on GPUs: decode on the device, run in half precision, run near ties again exactly."""

from heldout.models.gpu.network import Network, TorchClassifier
from heldout.models.gpu.outputs import BatchOutput, ModelOutput, Settings
from heldout.models.gpu.pipeline import Pipeline
from heldout.models.gpu.reader import FileReads, SourceReads
from heldout.models.gpu.recheck import Calibration, calibrate

__all__ = [
    "BatchOutput",
    "Calibration",
    "FileReads",
    "ModelOutput",
    "Network",
    "Pipeline",
    "Settings",
    "SourceReads",
    "TorchClassifier",
    "calibrate",
]
