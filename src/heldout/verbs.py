"""All verbs as Python functions: the fields of a verb's request by name, its arguments by place too.

>>> from inspect import signature
>>> from heldout import verbs
>>> print(signature(verbs.cite))
(testset, *, bibtex=False, workspace=None)
"""

from typing import Any


def __dir__() -> list[str]:
    from heldout.front import VERBS, python_name

    return sorted(map(python_name, VERBS))


def __getattr__(name: str) -> Any:
    from heldout.core.request import did_you_mean
    from heldout.front import VERBS, function, python_name

    verb = next((verb for verb in VERBS if python_name(verb) == name), None)
    if verb is None:
        hint = did_you_mean(name, __dir__())
        raise AttributeError(f"module 'heldout.verbs' has no attribute {name!r}: {hint}")
    made = globals()[name] = function(verb)
    return made
