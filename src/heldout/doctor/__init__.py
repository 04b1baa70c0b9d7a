"""Doctor: what is wrong with these labels, these outputs, this label space; with the fix."""

from __future__ import annotations

from heldout.doctor.diagnose import diagnose, diagnose_array
from heldout.doctor.evidence import ALPHA
from heldout.doctor.finding import CODES, Finding, Repair, Severity
from heldout.doctor.merging import merged_lines
from heldout.doctor.preprocessing import Trial, Tried, check_preprocessing
from heldout.doctor.repairing import repaired

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
