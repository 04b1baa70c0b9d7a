"""Published requests by name.

CLIP-GeoYFCC (arXiv 2312.00364): 1,146,768 photographs relabelled over ImageNet-21k, the million of the
greatest similarity, continents with 4 % of them or more, the 350 largest classes of 450 images or more,
at most 2,000 images of each. Its 45 classes are the 56 largest without eleven that the authors took out;
why they did is our reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heldout.core.errors import NotFound

_DEMONYM = "people of one country: the label gives the domain away"
EXCLUDED_45: Mapping[str, str] = {
    "n09718811": f"Jordanian: {_DEMONYM}",
    "n02801184": "basilica: near-synonym of cathedral",
    "n09393524": "plage: near-synonym of beach",
    "n09718936": f"Korean: {_DEMONYM}",
    "n03492250": "harbor: near-synonym of pier",
    "n09691729": f"Bahamian: {_DEMONYM}",
    "n09734450": f"Tibetan: {_DEMONYM}",
    "n03028079": "church: near-synonym of cathedral",
    "n10342992": f"Mycenaen: {_DEMONYM}",
    "n09714120": f"Icelander: {_DEMONYM}",
    "n09695514": f"Bruneian: {_DEMONYM}",
}
"""The eleven classes among the 56 largest that are not among the published 45."""

_GEOYFCC: dict[str, Any] = {
    "domain": "continent",
    "label_space": "imagenet-21k",
    "top": 1_000_000,
    "min_domain_share": 0.04,
    "min_class": 450,
    "cap": 2000,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "clip-geoyfcc-350": {**_GEOYFCC, "classes": 350},
    "clip-geoyfcc-45": {
        **_GEOYFCC,
        "classes": 45,
        "exclude": [f"{name}={reason}" for name, reason in EXCLUDED_45.items()],
    },
    "geoyfcc": {
        "domain": "country",
        "min_domain": 10_000,
        "domain_cap": 20_000,
        "min_class_domains": 5,
    },
}
"""Values of parameters by preset. Exclusions come before the choice of the largest: 45 classes
after eleven exclusions are the 56 largest without them."""


def preset(name: str) -> dict[str, Any]:
    """The values of a preset."""
    if name not in PRESETS:
        raise NotFound(f"no preset {name!r}", fix=f"there is {', '.join(PRESETS)}")
    return dict(PRESETS[name])
