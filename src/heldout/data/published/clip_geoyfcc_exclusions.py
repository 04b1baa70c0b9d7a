"""Classes that the published 45 of CLIP-GeoYFCC leave out; importing them loads nothing else."""

from __future__ import annotations

from collections.abc import Mapping

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
