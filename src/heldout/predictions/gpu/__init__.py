"""Prediction on GPUs: decode on the device, run in half precision, run near ties again exactly."""

from heldout.predictions.gpu.network import Network, TorchClassifier
from heldout.predictions.gpu.outputs import BatchOutput, ModelOutput, Settings
from heldout.predictions.gpu.pipeline import Pipeline
from heldout.predictions.gpu.reader import FileReads, SourceReads
from heldout.predictions.gpu.recheck import Calibration, calibrate

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
