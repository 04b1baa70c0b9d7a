"""Doctor: what is wrong with these labels, these outputs, this label space; with the fix."""

from __future__ import annotations

from heldout.doctor.diagnose import diagnose, diagnose_array
from heldout.doctor.evidence import ALPHA
from heldout.doctor.finding import CODES, Finding, Repair, Severity
from heldout.doctor.repairing import model_label_space, repaired

__all__ = [
    "ALPHA",
    "CODES",
    "Finding",
    "Repair",
    "Severity",
    "diagnose",
    "diagnose_array",
    "model_label_space",
    "repaired",
]
