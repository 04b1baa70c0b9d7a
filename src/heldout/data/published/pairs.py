"""Values of the shape ``subject(context)`` from what is said of an object: attributes, relations."""

from __future__ import annotations

from heldout.data.published.names import Names
from heldout.data.published.options import Ontology
from heldout.data.published.report import Problems
from heldout.data.published.subset_names import joined


class Pairs:
    """Makes ``subject(context)`` values, and counts what cannot be one.

    An ``ontology`` lists the contexts to keep. Pairs are few and come often, so each is made once.
    """

    def __init__(
        self, what: str, names: Names, problems: Problems, ontology: Ontology | None = None
    ) -> None:
        self._what = what
        self._names = names
        self._problems = problems
        self._ontology = ontology
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def value(self, subject: str, context: object, where: str) -> str:
        """The value, or "" for a context that is not used."""
        if not isinstance(context, str):
            self._problems.add(f"{self._what} that is no text, left out", where)
            return ""
        known = self._known.get((subject, context))
        if known is None:
            known = self._known[subject, context] = self._make(subject, context)
        if not known[0]:
            self._problems.add(known[1], where)
        return known[0]

    def _make(self, subject: str, context: str) -> tuple[str, str]:
        name = self._names.clean(context)
        if not name:
            return "", f"{self._what} that is no text, left out"
        if self._ontology is not None and name not in self._ontology:
            return "", f"{self._what} that the ontology does not list, left out"
        return joined(subject, name), ""
