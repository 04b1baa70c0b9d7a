"""The doctor: what is wrong with labels, outputs or label spaces, with the evidence and the fix."""
