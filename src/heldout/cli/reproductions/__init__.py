"""Published results as run files over the public verbs, nothing else."""

from __future__ import annotations

from pathlib import Path

from heldout.core.errors import NotFound

_FOLDER = Path(__file__).parent


def published_runs() -> list[str]:
    """The results that can be reproduced, by name."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def published_run(name: str) -> Path:
    """The run file of a published result."""
    path = _FOLDER / f"{name}.toml"
    if name not in published_runs():
        raise NotFound(
            f"no published result {name!r}", fix=f"there is {', '.join(published_runs())}"
        )
    return path
