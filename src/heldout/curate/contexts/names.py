"""Names of subsets: ``subject(context)``, read back to the same two words whatever these hold.

How the two words are written is :mod:`heldout.data.published.metashift`; here a name that has not the
form is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from heldout.core.errors import UserError
from heldout.data.published.metashift import joined, parted


class SubsetName(NamedTuple):
    """The two words of a subset: what is shown, and with or in what."""

    subject: str
    context: str


def subset_name(subject: str, context: str) -> str:
    """The name of a subset; :func:`parse_subset` gives both words back.

    >>> subset_name("cat", "shelf (wall)")
    'cat(shelf (wall))'
    >>> subset_name("cat", ":)")
    'cat(:%29)'
    """
    if not subject or not context:
        raise UserError(
            f"a subset of subject {subject!r} and context {context!r}", fix="give it both words"
        )
    return joined(subject, context)


def parse_subset(name: str) -> SubsetName:
    """The words of a subset's name; a name that has not the form is a user's error.

    >>> parse_subset("cat(shelf (wall))")
    SubsetName(subject='cat', context='shelf (wall)')
    """
    found = SubsetName(*parted(name))
    if not found.subject:
        raise UserError(f"{name!r} is no subset", fix="write subject(context), such as cat(sofa)")
    return found
