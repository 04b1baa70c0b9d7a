"""Names as annotations state them, made fit to be values: trimmed, single spaces, proper text."""

from __future__ import annotations

from typing import Any


class Names:
    """Cleans names, and remembers those that it has seen: there are few, and they come often."""

    def __init__(self, *, lower: bool = False) -> None:
        self._lower = lower
        self._known: dict[str, str] = {}

    def clean(self, value: Any) -> str:
        """The name, or "" for what is no name: another type, nothing but space, broken text.

        >>> Names().clean("  fire   hydrant ")
        'fire hydrant'
        """
        if not isinstance(value, str):
            return ""
        known = self._known.get(value)
        if known is None:
            known = " ".join(value.split())
            if self._lower:
                known = known.lower()
            if not known.isprintable() and not _encodes(known):
                known = ""
            self._known[value] = known
        return known

    def clean_all(self, values: Any) -> list[str]:
        """The names of a list, or the one name, without what is no name."""
        if isinstance(values, str):
            values = [values]
        if not isinstance(values, list):
            return []
        return [name for name in map(self.clean, values) if name]


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
