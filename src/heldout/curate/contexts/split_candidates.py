"""Train and test domains of one class: what there is, how large, and how far apart.

Candidates are the communities of the class's meta-graph and its single subsets, and for training
also two communities together, as in the published splits. The distance is the default one of
:mod:`heldout.curate.contexts.distances`, which is defined for every pair; sizes are counted on what
a split would really take: training images that are in no test domain, and no image of two classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.contexts.distances import Distance, profile_distance
from heldout.curate.contexts.domain_split import Domain
from heldout.curate.contexts.graph import MINIMUM, meta_graph
from heldout.curate.contexts.names import parse_subset, subset_name
from heldout.curate.contexts.profiles import Profiles, make_profiles
from heldout.curate.contexts.subsets import IntArray, Subsets


@dataclass(frozen=True, kw_only=True)
class ClassShift:
    """One class of a found split: what it trains on, what it is tested on, how far apart.

    ``train_images``, ``test_images``  what is left once test images and images of two classes are
    out of training
    """

    label: str
    train: tuple[Domain, ...]
    test: Domain
    distance: Distance
    train_images: int
    test_images: int

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "class": self.label,
            "train": {domain.name: list(domain.subsets) for domain in self.train},
            "test": {self.test.name: list(self.test.subsets)},
            "distance": self.distance.value,
            "low": self.distance.low,
            "high": self.distance.high,
            "train_images": self.train_images,
            "test_images": self.test_images,
        }


def domains_of(subsets: Subsets, label: str) -> list[Domain]:
    """The communities of a class, then its single subsets that are not one already.

    A community is named after its largest subsets: ``dog(bed+sofa+3)`` is those two and three more.
    """
    graph = meta_graph(subsets, label, minimum=1)
    found: list[Domain] = []
    for community in graph.communities:
        ordered = sorted(community, key=lambda place: (-int(graph.sizes[place]), place))
        words = [parse_subset(graph.subsets[place]).context for place in ordered]
        more = [str(len(words) - 2)] if len(words) > 2 else []
        names = tuple(graph.subsets[place] for place in community)
        name = subset_name(label, "+".join(words[:2] + more)) if len(words) > 1 else names[0]
        found.append(Domain(name=name, subsets=names))
    alone = {domain.subsets[0] for domain in found if len(domain.subsets) == 1}
    return found + [Domain(name=n, subsets=(n,)) for n in graph.subsets if n not in alone]


def class_shifts(
    subsets: Subsets,
    label: str,
    *,
    distance: float,
    images: int,
    test: Domain | None = None,
    minimum: int = MINIMUM,
    without: IntArray | None = None,
    least_test: int | None = None,
    exact: int = 3000,
) -> list[ClassShift]:
    """Train and test domains of one class with enough images, nearest to ``distance`` first.

    Of those that are off by the same number of whole hundredths, the one with more images is first.

    ``test``     this test domain and no other, with at least ``least_test`` images
    ``without``  images that do not count, as sorted positions in ``subsets.image_ids``
    ``exact``    of more pairs than that, only those count whose distance comes nearest before it
                 is mended for the number of images
    """
    if not 0.0 <= distance <= 1.0:
        raise UserError(f"a distance of {distance}", fix="give 0 (the same) to 1 (nothing shared)")
    own = subsets.of(label).at_least(minimum)
    profiles = make_profiles(own)
    domains = domains_of(own, label)
    trains = [(domain,) for domain in domains] + list(
        itertools.combinations([domain for domain in domains if len(domain.subsets) > 1], 2)
    )
    tests = domains if test is None else [test]
    dropped = subsets.image_ids[without] if without is not None else np.empty(0, dtype=object)
    kept = ~np.isin(own.image_ids, dropped)
    trained = [domain_names(train) for train in trains]
    tested = [domain_names((target,)) for target in tests]
    left, held = _sizes(own, trained, tested, kept)
    disjoint = _disjoint(own, trained, tested)
    fits = disjoint & (left >= images) & (held >= (images if least_test is None else least_test))
    rows, columns = np.nonzero(fits)
    if not len(rows):
        best = np.where(disjoint, np.minimum(left, held), 0).max(initial=0)
        raise NotApplicable(
            f"class {label!r} has no two domains with {images} images to train and to test: the "
            f"best has {int(best)}",
            fix="ask for fewer images, or a smaller --minimum",
        )
    if len(rows) > exact:
        near = np.abs(_plain_distances(profiles, trained, tested)[rows, columns] - distance)
        chosen = np.sort(np.argsort(near, kind="stable")[:exact])
        rows, columns = rows[chosen], columns[chosen]
    known: dict[frozenset[tuple[str, ...]], Distance] = {}
    collections = {
        names: profiles.collection(names)
        for names in {*(trained[r] for r in rows.tolist()), *(tested[c] for c in columns.tolist())}
    }
    found: list[ClassShift] = []
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        key = frozenset((trained[row], tested[column]))
        if key not in known:
            known[key] = profile_distance(
                collections[trained[row]], collections[tested[column]], replicates=0
            )
        found.append(
            ClassShift(
                label=label,
                train=trains[row],
                test=tests[column],
                distance=known[key],
                train_images=int(left[row, column]),
                test_images=int(held[row, column]),
            )
        )
    found.sort(
        key=lambda item: (
            hundredths(item.distance.value - distance),
            -(item.train_images + item.test_images),
            abs(item.distance.value - distance),
            [domain.name for domain in item.train],
            item.test.name,
        )
    )
    return found


def hundredths(off: float) -> int:
    """How many whole hundredths a distance is off: closer than that is alike, and size counts."""
    return int(abs(off) * 100)


def domain_names(domains: Sequence[Domain]) -> tuple[str, ...]:
    """All subsets of some domains, sorted, each once."""
    return tuple(sorted({name for domain in domains for name in domain.subsets}))


def _choice(own: Subsets, chosen: Sequence[tuple[str, ...]]) -> Any:
    """Which subsets each choice has: ``csc_array`` (subsets, choices) of ones."""
    from scipy.sparse import csc_array

    places = [[own.position(name) for name in names] for names in chosen]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in places])])
    flat = np.concatenate(places).astype(np.int64)
    return csc_array((np.ones(len(flat)), flat, starts), shape=(len(own), len(chosen)))


def _sizes(
    own: Subsets,
    trained: Sequence[tuple[str, ...]],
    tested: Sequence[tuple[str, ...]],
    kept: npt.NDArray[np.bool_],
) -> tuple[IntArray, IntArray]:
    """Images (trains, tests) that are left to train without those of the test, and to test."""
    table = own.matrix.tocsr()[np.flatnonzero(kept)].astype(np.float64)

    def members(chosen: Sequence[tuple[str, ...]]) -> Any:
        found = (table @ _choice(own, chosen)).tocsc()
        found.data = np.minimum(found.data, 1.0)
        return found

    train, test = members(trained), members(tested)
    shared = np.asarray((train.T @ test).todense())
    of_train = np.asarray(train.sum(axis=0)).reshape(-1, 1)
    of_test = np.broadcast_to(np.asarray(test.sum(axis=0)).reshape(1, -1), shared.shape)
    return (of_train - shared).astype(np.int64), of_test.astype(np.int64)


def _disjoint(
    own: Subsets, trained: Sequence[tuple[str, ...]], tested: Sequence[tuple[str, ...]]
) -> npt.NDArray[np.bool_]:
    """Bool (trains, tests): whether they have no subset in common."""
    shared = _choice(own, trained).T @ _choice(own, tested)
    return np.asarray(np.asarray(shared.todense()) == 0)


def _plain_distances(
    profiles: Profiles, trained: Sequence[tuple[str, ...]], tested: Sequence[tuple[str, ...]]
) -> npt.NDArray[np.float64]:
    """Float64 (trains, tests): the distance of profiles as they are, not mended for sizes."""
    train = np.array([profiles.collection(names).profile for names in trained])
    found = np.empty((len(trained), len(tested)))
    for column, names in enumerate(tested):
        test = profiles.collection(names).profile
        halves = _entropy(train) + _entropy(test[None])
        found[:, column] = _entropy((train + test) / 2) - halves / 2
    return np.sqrt(np.clip(found, 0.0, 1.0))


def _entropy(profile: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """In bits, a row at a time."""
    logs = np.log2(profile, out=np.zeros_like(profile), where=profile > 0)
    total: npt.NDArray[np.float64] = -(profile * logs).sum(axis=1)
    return total
