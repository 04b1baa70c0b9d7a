"""What the verbs that make test sets share, and what ``build hard`` is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from heldout.core.request import (
    Exclude,
    Name,
    Out,
    People,
    Plan,
    Replace,
    Request,
    RequestError,
    Rule,
    Share,
    StoredModels,
    Testset,
    Truth,
    Wrong,
    did_you_mean,
    option,
)

Preset = Annotated[str, option("Published request to start from; other options win over it.")]


def preset_values(
    presets: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any], default: str | None = None
) -> Mapping[str, Any]:
    """The values of the preset that is named among those given."""
    name = given.get("preset", default)
    if name is None:
        return {}
    if name not in presets:
        raise RequestError(f"no preset {name!r}", fix=did_you_mean(str(name), presets))
    return presets[name]


class HardParameters(Request, frozen=True, kw_only=True):
    """The rule by which hard images are chosen."""

    wrong: Wrong | None = None
    major: (
        Annotated[
            int,
            option(
                "Models whose mistake the panel must call Major; as many as --wrong by default.",
                ge=1,
            ),
        ]
        | None
    ) = None
    truth: Truth | None = None
    rule: Rule = "majority"
    share: Share | None = None
    people: People = 1


class HardRequest(HardParameters, frozen=True, kw_only=True):
    """Make a set of images that models get wrong (ImageNet-M).

    An image is chosen if k of n models are wrong, a panel calls that a major mistake, and every label
    was reviewed. Judgements come from the workspace: heldout mistakes queue --aim hard asks for them.
    The truth that says what is right is the multi-label one by default.
    """

    testset: Testset
    models: StoredModels = ()
    exclude: Exclude = ()
    out: Out | None = None
    name: Name | None = None
    replace: Replace = False
    plan: Plan = False
