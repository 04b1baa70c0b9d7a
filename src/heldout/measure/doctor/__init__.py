"""Doctor: what is wrong with these labels, these outputs, this label space; with the fix."""

from __future__ import annotations

from heldout.measure.doctor.diagnose import diagnose, diagnose_array
from heldout.measure.doctor.evidence import ALPHA
from heldout.measure.doctor.finding import CODES, Finding, Repair, Severity
from heldout.measure.doctor.merging import merged_lines
from heldout.measure.doctor.preprocessing import Trial, Tried, check_preprocessing
from heldout.measure.doctor.repairing import repaired

__all__ = [
    "ALPHA",
    "CODES",
    "Finding",
    "Repair",
    "Severity",
    "Trial",
    "Tried",
    "check_preprocessing",
    "diagnose",
    "diagnose_array",
    "merged_lines",
    "repaired",
]
