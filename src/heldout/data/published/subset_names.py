"""Names of subsets: ``subject(context)``, taken apart into the same two words again.

The context is the last balanced group of parentheses: ``bird (toy)(cage)`` is a toy bird in a cage.
A context whose own parentheses do not balance is written with ``%28`` and ``%29`` for them, and
then ``%25`` for a percent sign.
"""

from __future__ import annotations

import re

_CODED = re.compile("%2[589]")
_MARKS = re.compile("[%()]")


def joined(subject: str, context: str) -> str:
    """The name of a subset of two words, neither of them empty.

    >>> joined("cat", "shelf (wall)"), joined("cat", ":)")
    ('cat(shelf (wall))', 'cat(:%29)')
    """
    if _MARKS.search(context) and (_opening(f"({context})") != 0 or _CODED.search(context)):
        context = _MARKS.sub(lambda found: f"%{ord(found[0]):X}", context)
    return f"{subject}({context})"


def parted(name: str) -> tuple[str, str]:
    """The subject and the context of a subset's name; ("", "") where it is no such name.

    >>> parted("bird (toy)(cage (red))"), parted("cat(:%29)"), parted("cat")
    (('bird (toy)', 'cage (red)'), ('cat', ':)'), ('', ''))
    """
    start = _opening(name)
    subject, context = name[: max(start, 0)], name[start + 1 : -1]
    if not subject or not context:
        return "", ""
    return subject, _CODED.sub(lambda found: chr(int(found[0][1:], 16)), context)


def _opening(text: str) -> int:
    """Where the group of parentheses that ends the text opens; -1 where none does."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] == ")") - (text[place] == "(")
        if depth <= 0:
            return place if depth == 0 and text[place] == "(" else -1
    return -1
