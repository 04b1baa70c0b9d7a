"""Names of subsets: ``subject(context)``, taken apart into the same two words again.

The context is the last balanced group of parentheses: ``bird (toy)(cage)`` is a toy bird in a cage.
A context whose own parentheses do not balance is written with ``%28`` and ``%29`` for them, and
then ``%25`` for a percent sign.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from heldout.core.errors import UserError

_CODED = re.compile("%2[589]")
_MARKS = re.compile("[%()]")


class SubsetName(NamedTuple):
    """The two words of a subset: what is shown, and with or in what."""

    subject: str
    context: str


def join_subset_name(subject: str, context: str) -> str:
    """The name of a subset of two words, neither empty; :func:`split_subset_name` gives both back.

    >>> join_subset_name("cat", "shelf (wall)"), join_subset_name("cat", ":)")
    ('cat(shelf (wall))', 'cat(:%29)')
    """
    if _MARKS.search(context) and (_opening(f"({context})") != 0 or _CODED.search(context)):
        context = _MARKS.sub(lambda found: f"%{ord(found[0]):X}", context)
    return f"{subject}({context})"


def split_subset_name(name: str) -> SubsetName:
    """The words of a subset's name; any other text is a user's error.

    >>> split_subset_name("bird (toy)(cage (red))"), split_subset_name("cat(:%29)").context
    (SubsetName(subject='bird (toy)', context='cage (red)'), ':)')
    """
    start = _opening(name)
    subject, context = name[: max(start, 0)], name[start + 1 : -1]
    if not subject or not context:
        raise UserError(
            f"{name!r} is not a subset", fix="write subject(context), such as cat(sofa)"
        )
    return SubsetName(subject, _CODED.sub(lambda found: chr(int(found[0][1:], 16)), context))


def joined(subject: str, context: str) -> str:
    """The same, for readers."""
    return join_subset_name(subject, context)


def parted(name: str) -> tuple[str, str]:
    """The two words; empty where a text is not a name."""
    try:
        return split_subset_name(name)
    except UserError:
        return "", ""


def _opening(text: str) -> int:
    """Where the group of parentheses that ends the text opens; -1 where none does."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] == ")") - (text[place] == "(")
        if depth <= 0:
            return place if depth == 0 and text[place] == "(" else -1
    return -1
