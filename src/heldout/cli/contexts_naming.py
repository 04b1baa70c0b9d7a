"""How subsets are named on the command line: several merged are joined by a plus."""

from __future__ import annotations


def named_parts(text: str, known: set[str]) -> list[str]:
    """``A+B`` as names; a name that itself holds a plus is taken whole where it is known."""
    if text in known:
        return [text]
    parts: list[str] = []
    for piece in text.split("+"):
        joined = f"{parts[-1]}+{piece}" if parts else ""
        if parts and parts[-1] not in known and (joined in known or not parts[-1].endswith(")")):
            parts[-1] = joined
        else:
            parts.append(piece)
    return [part.strip() for part in parts]
