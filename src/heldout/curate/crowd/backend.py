"""What every crowd offers: grids go out as tasks, and come back as assignments.

::

    grids ──► publish ──► Crowd.create ···· people ···· Crowd.answers ──► votes (judgements)
                                                        Crowd.settle  ◄── approve, reject

A crowd is four methods. :class:`~heldout.curate.crowd.local.LocalCrowd` keeps tasks and answers in a file,
:class:`~heldout.curate.crowd.simulated.SimulatedCrowd` answers them too, and
:class:`~heldout.curate.crowd.mturk.MTurkCrowd` is Amazon's. None of them learns what an image is: a task
has tokens (:class:`Secrets`), one per slot, and only the workspace can tell which is which.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from heldout.core.errors import BadFile
from heldout.core.files import lock_file
from heldout.core.schema import Document
from heldout.data.labels.label_space import Class

Status = Literal["Submitted", "Approved", "Rejected"]
GRID, SELECTED = "grid", "selected"
"""The fields of an answer: the name of the grid, and the selected tokens joined with ``|``."""


class Secrets:
    """The key of a workspace's crowd: what makes tokens of images and hashes of people.

    Tokens are message authentication codes (HMAC-SHA256) of the grid and the image. Nobody without
    the key can make one or tell which image it is, and one image has another token in every grid,
    so that a control that recurs does not stand out. Nothing needs decrypting: the workspace knows
    the images of a grid, and compares.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of(cls, path: Path) -> Secrets:
        """The key in a file that only its owner may read; it is made where there is none."""
        with lock_file(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                made = path.with_name(f"{path.name}.new")
                made.unlink(missing_ok=True)  # of a run that was killed
                handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "w") as file:
                    file.write(secrets.token_hex(32))
                    file.flush()
                    os.fsync(handle)
                made.replace(path)
        try:
            return cls(bytes.fromhex(path.read_text()))
        except ValueError:
            raise BadFile(
                path,
                "is not a key",
                fix="restore it: without it the answers to published grids cannot be read",
            ) from None

    def token(self, grid: str, image: str) -> str:
        """What stands for an image in one grid: 32 hexadecimal digits."""
        return self._code("image", grid, image)

    def who(self, worker: str) -> str:
        """What stands for a person, everywhere."""
        return self._code("worker", worker)

    def _code(self, *parts: str) -> str:
        # Lengths keep ("a", "bc") and ("ab", "c") apart.
        text = "".join(f"{len(part)}:{part}" for part in parts)
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class GridTask:
    """One grid as a crowd gets it.

    ``grid``         its name, by which nothing is created twice
    ``asked``        the class that images may show: names, meaning, links
    ``tokens``       what is shown, in order
    ``assignments``  how many people answer it
    ``rates``        for simulated people alone: how often each image is selected by a perfect crowd
    """

    grid: str
    asked: Class
    tokens: Sequence[str]
    assignments: int
    rates: Sequence[float] = ()


class PublishedTask(NamedTuple):
    """A task that a crowd has: its name there, when it came, and how many people are to answer."""

    grid: str
    task: str
    published: str
    assignments: int


class Assignment(Document, frozen=True, kw_only=True):
    """One person's answer to one grid, as the crowd gave it.

    ``who``                    a keyed hash (:meth:`Secrets.who`), never the crowd's own name of a person
    ``accepted``, ``submitted``  ISO 8601
    ``answer``                 the fields of the form, see :data:`GRID`
    ``votes``                  what became of its votes so far: ``Submitted`` while they count, then
                               ``Rejected`` or ``Ignored``, and back; empty if it has none
    """

    assignment: str
    who: str
    status: Status
    accepted: str
    submitted: str
    answer: Mapping[str, str]
    votes: tuple[str, ...] = ()


class Crowd(Protocol):
    """People who answer grids."""

    def create(self, task: GridTask) -> str:
        """Publish a task; its name there. A grid that is there already is left alone."""

    def tasks(self) -> Iterable[PublishedTask]:
        """All tasks that are there."""

    def answers(self, task: str) -> Iterable[Assignment]:
        """What was submitted for a task so far, in any order."""

    def settle(self, assignment: str, *, rejected: str | None) -> None:
        """Approve an assignment, or reject it for the reason given."""


def chosen(answer: Mapping[str, str], grid: str, tokens: Sequence[str]) -> set[int] | str:
    """The slots that an answer selects; or what is wrong with it, in a few words.

    >>> sorted(chosen({"grid": "g", "selected": "t3|t1"}, "g", ["t1", "t2", "t3"]))
    [0, 2]
    >>> chosen({"grid": "g", "selected": "t9"}, "g", ["t1", "t2", "t3"])
    'selects what the grid does not show'
    """
    if answer.get(GRID) != grid:
        return "is not an answer to this grid"
    place = {token: slot for slot, token in enumerate(tokens)}
    named = [token for token in answer.get(SELECTED, "").split("|") if token]
    if not place.keys() >= set(named):
        return "selects what the grid does not show"
    return {place[token] for token in named}
