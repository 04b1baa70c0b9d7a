"""Down to which distance images are duplicates: thresholds from planted copies of photos.

The threshold of a measure is the largest one that keeps false alarms among pairs of *different* photos
as rare as asked. One half of the photos (by a hash of their ids) sets it; the other half says how many
false alarms it really has, and which share of planted copies it finds.

Thresholds are kept by measure and encoder, ``calibrations/<measure>@<12 hex of the encoder>.json`` of a
workspace. What a workspace has not is published, or comes with the package; a model that nobody has
calibrated has none: its pairs are ranked, and nothing is decided by them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np

from heldout.core.context import Context, Result
from heldout.core.errors import NotApplicable, UserError
from heldout.core.files import sealed, unsealed, write_json
from heldout.core.progress import Progress, Tick, no_progress
from heldout.core.records import Table
from heldout.core.schema import Document, convert, read_plain
from heldout.core.workspace import Workspace
from heldout.curate.dedupe.copies import COPIES, copies_of, reduced
from heldout.curate.dedupe.dssim import nearest_dssim
from heldout.curate.dedupe.nearest import nearest
from heldout.curate.dedupe.requests import CalibrateRequest, Measure
from heldout.curate.dedupe.search import encoder_of
from heldout.curate.pool_images import find_images, note_failures
from heldout.data.images import BadImage, bytes_of
from heldout.data.images.decode import decode
from heldout.data.images.preprocessing import apply_geometry
from heldout.data.testset import TestSet
from heldout.data.testset.hashing import derived_seed, row_hash
from heldout.measure.evaluation.prediction import limited
from heldout.models.adapters.model import Encoder
from heldout.models.embeddings import embed, encoder_key
from heldout.models.predictions.pixels import ImageFiles, image_files
from heldout.stats.intervals import interval_from_error, normal_quantile, wilson

FEW = 10
"""With fewer false alarms allowed than this, the threshold rests on a handful of pairs, and that is said."""
_TOGETHER = 16
"""Photos whose copies' vectors are in memory at once; of pixels 4 MB for each photo."""
_SHIPPED = Path(__file__).parent / "calibrations.json"
_FEWEST = 3
"""Photos of each half: of fewer, none can be left out to see how the rate depends on it."""
_AGAIN = "remove it, and run heldout calibrate again"


class Recall(Document, frozen=True, kw_only=True):
    """The share of planted copies of one kind that are found; kinds are those of :data:`COPIES`."""

    record: ClassVar[str] = "recall"
    table: ClassVar[Table] = Table(
        "planted copies that are found, in percent", ("copy", "n:,", "value:%1[]"), "measure", 24
    )
    measure: str
    copy: str
    n: int
    value: float
    low: float
    high: float


class DistanceThreshold(Document, frozen=True, kw_only=True):
    """A threshold: pairs at most so far apart count as found.

    ``encoder``, ``encoder_key``  what made the vectors
    ``asked``         false alarms among pairs of different photos that were allowed; null where the
                      threshold is published
    ``photos``        photos whose pairs set the threshold
    ``pairs``         pairs of other photos, all different, with the rate of ``false_alarms`` among them
    ``recalls``       of copies of those other photos; none where nothing was evaluated
    ``testset``       what the photos are
    """

    record: ClassVar[str] = "calibration"
    table: ClassVar[Table] = Table(
        "thresholds; false alarms and copies found in percent",
        ("measure", "encoder", "threshold", "asked:%3", "photos:,", "pairs:,",
         "false alarms=false_alarms:%3[]", "copies found=recall:%1"),
    )  # fmt: skip
    schema_version: int = 1
    measure: str
    encoder: str
    encoder_key: str
    threshold: float
    asked: float | None = None
    photos: int = 0
    pairs: int = 0
    false_alarms: float | None = None
    low: float | None = None
    high: float | None = None
    recalls: tuple[Recall, ...] = ()
    testset: str = ""
    seed: int = 0

    @property
    def recall(self) -> float | None:
        """The mean share of copies found, over their kinds; None where nothing was evaluated."""
        return float(np.mean([kind.value for kind in self.recalls])) if self.recalls else None

    @property
    def source(self) -> str:
        """Where the threshold is from, and what is known of it, in words."""
        origin = "published" if self.asked is None else f"calibrated on {self.testset}"
        if self.recall is None or self.false_alarms is None:
            return origin
        return (
            f"{origin}; finds {self.recall:.1%} of planted copies, "
            f"{1e4 * self.false_alarms:.1f} false alarms in 10,000 pairs"
        )


def calibration_of(
    workspace: Workspace, measure: str, encoder_key: str
) -> DistanceThreshold | None:
    """The calibration of a measure with an encoder: the workspace's, else a published or shipped one."""
    path = _path(workspace, measure, encoder_key)
    if path.is_file():
        return convert(unsealed(read_plain(path), path, fix=_AGAIN), DistanceThreshold, where=path)
    return _shipped().get((measure, encoder_key))


@cache
def _shipped() -> dict[tuple[str, str], DistanceThreshold]:
    """What comes with the package: published thresholds, and those of what installs with it."""
    known = convert(read_plain(_SHIPPED), list[DistanceThreshold], where=_SHIPPED)
    return {(each.measure, each.encoder_key): each for each in known}


def _path(workspace: Workspace, measure: str, encoder_key: str) -> Path:
    return workspace.root / "calibrations" / f"{measure}@{encoder_key[:12]}.json"


def calibrate(request: CalibrateRequest, context: Context) -> Result:
    """Calibrate measures on a set of different photos, and keep the thresholds in the workspace."""
    found = find_images(context, request.testset)
    if found.pool is None:
        raise UserError(
            f"{request.testset} holds vectors, not images", fix="name a test set, pool or folder"
        )
    testset = limited(found.pool, request.limit)
    false_alarms_allowed(
        (len(testset) + 1) // 2, request.false_alarms
    )  # before anything is computed
    calibrations = []
    for measure in request.measures:
        encoder = encoder_of(measure, request.features)
        photos = _photos(testset, encoder, request, context)
        halves = photos.halves(derived_seed("calibration", request.seed))
        made = _calibrated(measure, encoder, *halves, request, context)
        made = msgspec.structs.replace(
            made, testset=f"{len(photos.ids):,} images of {found.pool.name}"
        )
        path = _path(context.workspace, measure, made.encoder_key)
        write_json(path, sealed(msgspec.to_builtins(made)))
        context.say(f"wrote {path}")
        calibrations.append(made)
    recalls = [recall for made in calibrations for recall in made.recalls]
    return Result(records=calibrations, brief=[*calibrations, *recalls])


class Photos(NamedTuple):
    """Photos with their vectors: ``rows`` are theirs in the set, ``ids`` their names."""

    files: ImageFiles
    ids: Sequence[str]
    rows: np.ndarray
    vectors: np.ndarray

    def halves(self, seed: int) -> tuple[Photos, Photos]:
        """Two halves by the order of a hash of the ids; the first has one more of an odd number."""
        order = np.argsort(row_hash(self.ids, seed=seed), kind="stable")
        middle = (len(order) + 1) // 2
        return self._some(np.sort(order[:middle])), self._some(np.sort(order[middle:]))

    def _some(self, places: np.ndarray) -> Photos:
        ids = [self.ids[place] for place in places.tolist()]
        return Photos(self.files, ids, self.rows[places], self.vectors[places])


def _photos(
    testset: TestSet, encoder: Encoder, request: CalibrateRequest, context: Context
) -> Photos:
    """The images that have a vector; of files with the same bytes the first."""
    with context.progress(f"{encoder.name} of {testset.name}") as progress:
        vectors = embed(
            testset,
            encoder,
            workspace=context.workspace,
            images=request.images,
            workers=request.workers,
            progress=progress,
        )
    note_failures(vectors, context)
    failed = vectors.facts["failures"]
    files = image_files(testset, request.images)
    seen: dict[str, int] = {}
    for row, (name, digest) in enumerate(zip(vectors.ids, files.digests, strict=True)):
        if name not in failed:
            seen.setdefault(digest or f"row {row}", row)
    if again := len(vectors.ids) - len(failed) - len(seen):
        context.note(f"{again:,} images have the bytes of others, and are left out")
    rows = np.array(sorted(seen.values()), np.int64)
    ids = [vectors.ids[row] for row in rows.tolist()]
    return Photos(files, ids, rows, vectors.vectors[rows])


def _calibrated(
    measure: Measure,
    encoder: Encoder,
    setting: Photos,
    judging: Photos,
    request: CalibrateRequest,
    context: Context,
) -> DistanceThreshold:
    """A threshold from one half of the photos, judged on the other."""
    allowed = false_alarms_allowed(len(setting.ids), request.false_alarms)
    if len(judging.ids) < _FEWEST:
        raise NotApplicable(
            f"{len(judging.ids)} photos cannot judge a threshold",
            fix=f"give {2 * _FEWEST} photos or more",
        )
    between = distances(measure, setting.vectors, setting.vectors)
    threshold = largest_threshold(between, allowed)
    if allowed < FEW:
        context.note(
            f"{measure}: the threshold lets {allowed} of {_pairs(len(setting.ids)):,} pairs pass, which "
            f"is few; {2 * photos_needed(request.false_alarms, FEW):,} photos would make it steadier"
        )
    _note_nearest(setting.ids, between, context)
    apart = distances(measure, judging.vectors, judging.vectors)
    rate = false_alarm_rate(apart, threshold)
    with context.progress(f"copies for {measure}") as progress:
        found = copy_distances(measure, encoder, judging, request.seed, request.workers, progress)
    return DistanceThreshold(
        measure=measure,
        encoder=encoder.name,
        encoder_key=encoder_key(encoder),
        threshold=threshold,
        asked=request.false_alarms,
        photos=len(setting.ids),
        pairs=_pairs(len(judging.ids)),
        false_alarms=rate.value,
        low=rate.low,
        high=rate.high,
        recalls=recalls(measure, found, threshold),
        seed=request.seed,
    )


def _note_nearest(ids: Sequence[str], between: np.ndarray, context: Context) -> None:
    """Name the nearest different photos: copies among them would make the threshold too small."""
    rows, columns = np.triu_indices(len(ids), 1)
    nearest = np.argsort(between[rows, columns], kind="stable")[:3]
    pairs = "; ".join(
        f"{ids[one]} and {ids[other]} ({between[one, other]:.4g})"
        for one, other in zip(rows[nearest], columns[nearest], strict=True)
    )
    context.note(f"the nearest of the photos that count as different: {pairs}")


def _pairs(photos: int) -> int:
    return photos * (photos - 1) // 2


def photos_needed(rate: float, false_alarms: int = 1) -> int:
    """The fewest photos whose pairs are expected to have ``false_alarms`` false alarms at a rate.

    >>> photos_needed(1e-4), photos_needed(1e-4, 10)
    (142, 448)
    """
    pairs = false_alarms / rate
    return math.ceil((1 + math.sqrt(1 + 8 * pairs)) / 2)


def false_alarms_allowed(photos: int, rate: float) -> int:
    """How many of the photos' pairs may be false alarms; too few photos to allow one are refused.

    A quantile beyond the pairs that there are would be a guess.
    """
    allowed = math.floor(_pairs(photos) * rate)
    if allowed < 1:
        needed = max(2 * photos_needed(rate) - 1, 2 * _FEWEST)
        raise NotApplicable(
            f"the {photos:,} photos that set the threshold have {_pairs(photos):,} pairs, which cannot show "
            f"{rate:g} false alarms",
            fix=f"give {needed:,} photos or more (the other half judges), or ask for more false alarms",
        )
    return allowed


def distances(measure: Measure, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """All distances, float64 (ours, theirs), by the arithmetic of the search."""
    engine = nearest_dssim if measure == "dssim" else nearest
    found = engine(ours, theirs, len(theirs))
    made = np.empty((len(ours), len(theirs)))
    np.put_along_axis(made, found.rows, found.distances, axis=1)
    return made


def _sorted_pairs(between: np.ndarray, most: int) -> np.ndarray:
    """The smallest distances of pairs, each pair once, ascending."""
    pairs = between[np.triu_indices(len(between), 1)]
    return np.sort(np.partition(pairs, most - 1)[:most]) if most < len(pairs) else np.sort(pairs)


def largest_threshold(between: np.ndarray, allowed: int) -> float:
    """The largest threshold, to four digits, that at most ``allowed`` pairs are within.

    ``between``  distances between different photos, (n, n)

    >>> pairs = np.array([[0, 5.0, 7.12345], [5.0, 0, 6.0], [7.12345, 6.0, 0]])
    >>> largest_threshold(pairs, 2)
    7.123
    """
    pairs = _sorted_pairs(between, allowed + 1)
    if len(pairs) <= allowed:
        raise ValueError(f"{len(pairs)} pairs cannot exceed {allowed}")
    first = float(pairs[allowed])  # the nearest pair that must not pass
    if first <= 0:
        raise NotApplicable(
            f"more than {allowed} pairs of different photos have the distance 0",
            fix="leave copies out of the photos",
        )
    exponent = math.floor(math.log10(first)) - 3
    if (between == np.rint(between)).all():
        exponent = max(exponent, 0)
    digits = math.ceil(first / 10.0**exponent) - 1
    while float(f"{digits}e{exponent}") >= first:  # the quotient was rounded
        digits -= 1
    return float(f"{digits}e{exponent}")


class Rate(NamedTuple):
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float


def false_alarm_rate(between: np.ndarray, threshold: float) -> Rate:
    """The share of pairs of different photos within a threshold.

    Pairs share photos: some photos are near to many. The interval is Wilson's with the error of a
    jackknife over photos; where no pair is within, that of half as many pairs drawn one by one. (On
    samples of 100 to 400 photos such intervals held the rate of all 1,040 in 97 to 99 % of samples,
    those of pairs as if drawn one by one in 59 to 90 %.)
    """
    n = len(between)
    within = between <= threshold
    np.fill_diagonal(within, False)
    of_each = within.sum(axis=1)
    total, pairs = int(of_each.sum()) // 2, _pairs(n)
    without = (total - of_each) / _pairs(n - 1)
    error = math.sqrt((n - 1) / n * float(np.square(without - without.mean()).sum()))
    interval = interval_from_error(
        total / pairs, error, quantile=normal_quantile(0.95), bounds=(0.0, 1.0), units=pairs / 2
    )
    return Rate(total / pairs, interval.low, interval.high)


def copy_distances(
    measure: Measure,
    encoder: Encoder,
    photos: Photos,
    seed: int,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> np.ndarray:
    """How far each kind of copy is from its photo, float64 (photos, kinds)."""
    geometry = encoder.preprocessing.geometry
    began = time.monotonic()

    def vectors_of(place: int) -> np.ndarray:
        """Of a photo, then of its copies."""
        data = bytes_of(photos.files.source, photos.files.names[photos.rows[place]])
        photo = data if isinstance(data, BadImage) else decode(data, exif=geometry.exif)
        if isinstance(photo, BadImage):  # it could be read when it was encoded
            raise UserError(f"{photos.ids[place]}: {photo.reason}", fix="restore the file")
        photo = reduced(photo)
        copies = [copy.image for copy in copies_of(photo, photos.ids[place], seed=seed)]
        pixels = np.stack([apply_geometry(image, geometry) for image in (photo, *copies)])
        return encoder.encode_images(pixels)

    made = np.full((len(photos.ids), len(COPIES)), math.inf)
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(made), _TOGETHER):
            places = range(start, min(start + _TOGETHER, len(made)))
            for place, vectors in zip(places, pool.map(vectors_of, places), strict=True):
                good = np.flatnonzero(np.isfinite(vectors).all(axis=1))
                if len(good) and good[0] == 0:  # without a vector a copy is not found
                    made[place, good[1:] - 1] = distances(measure, vectors[good[1:]], vectors[:1])[
                        :, 0
                    ]
            progress(Tick(places.stop, 0, 0, len(made), time.monotonic() - began))
    return made


def recalls(measure: Measure, found: np.ndarray, threshold: float) -> tuple[Recall, ...]:
    """The share of each kind of copies within a threshold, with Wilson's interval."""
    made = []
    for kind, column in zip(COPIES, found.T, strict=True):
        hits, n = int((column <= threshold).sum()), len(column)
        limits = wilson(hits, n)
        made.append(
            Recall(
                measure=measure, copy=kind, n=n, value=hits / n, low=limits.low, high=limits.high
            )
        )
    return tuple(made)
