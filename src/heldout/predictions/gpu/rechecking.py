"""The exact path at work: the threshold from a sample, and the rows below it run again.

Where the device's pixels are those of Pillow to the bit, which the sample shows kind by kind, only
the model has to run again, in float32 on pixels that are still on the device. Rows of any other
kind are decoded by Pillow.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from heldout.predictions.gpu.exact import ExactPool
from heldout.predictions.gpu.lanes import Lane, Mark
from heldout.predictions.gpu.network import FLOAT16_MAX, Network, Recorded, graph_pool
from heldout.predictions.gpu.outputs import Batch
from heldout.predictions.gpu.reader import Reads
from heldout.predictions.gpu.recheck import Calibration, calibrate

EXACT_BATCH = 64
ENOUGH = 24
"""Images of a kind that must be equal, and none unequal, before the kind is trusted."""
_PATIENCE = 0.03


class Rechecker:
    """Decides what is run again, and runs it, in a thread of its own."""

    def __init__(
        self,
        networks: Sequence[Network],
        reads: Reads,
        pool: ExactPool,
        device: str,
        *,
        finish: Callable[[Batch], None],
        calibrations: tuple[Calibration, ...] | None = None,
        equal_kinds: frozenset[int] = frozenset(),
        target: float,
        fast: bool = False,
        record: bool = False,
    ) -> None:
        self.networks, self.reads, self.pool, self.device = networks, reads, pool, device
        self.calibrations = calibrations
        self.equal_kinds = equal_kinds
        self.target = target
        self.seconds = 0.0
        self._finish = finish
        self._lane = Lane(device)
        self._lock = threading.Lock()
        geometry = pool.geometry
        shape = (EXACT_BATCH, geometry.crop_height, geometry.crop_width, 3)
        memory = graph_pool(self._lane)
        self._steps = [
            Recorded(_exact_step(network), shape, self._lane, memory, record=record) for network in networks
        ] if not fast else []  # fmt: skip
        self._line: queue.Queue[Batch | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="recheck", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._line.put(None)
        self._thread.join(timeout=30)

    # ------------------------------------------------------------------ choosing

    def set_aside(self, batch: Batch) -> Mark:
        """Keep the pixels that the recheck may need; the batch's own buffer is free at the mark.

        Before the threshold is known these are the quarter with the smallest margins.
        """
        import torch

        wanted = np.zeros(len(batch.rows), bool)
        for i, draft in enumerate(batch.drafts):
            if self.calibrations is not None:
                wanted |= self.calibrations[i].flagged(draft.margin)
            else:
                small = np.argsort(draft.margin, kind="stable")[: -(-len(wanted) // 4)]
                wanted[small] = True
                wanted |= ~np.isfinite(draft.margin)
        wanted[list(batch.failures)] = False
        batch.kept = np.flatnonzero(wanted)
        if len(batch.kept):
            with self._lane.work():
                places = torch.from_numpy(batch.kept).to(self.device)
                batch.aside = batch.pixels[places]
        return self._lane.mark()

    def set_all_aside(self, batch: Batch) -> Mark:
        """Keep all pixels of a batch of the sample."""
        batch.kept = np.arange(len(batch.rows))
        with self._lane.work():
            batch.aside = batch.pixels[: len(batch.rows)].clone()
        return self._lane.mark()

    def take(self, batch: Batch) -> None:
        """Flag a batch's near ties; run them again, or finish the batch if it has none."""
        if self.calibrations is None:
            raise ValueError("no threshold is known yet")
        for calibration, draft in zip(self.calibrations, batch.drafts, strict=True):
            draft.flags = calibration.flagged(draft.margin)
            draft.flags[list(batch.failures)] = False
        flagged = batch.flagged()
        if not len(flagged):
            batch.aside = None
            self._finish(batch)
            return
        on_device = self._on_device(batch, flagged)
        for place in flagged[~on_device].tolist():
            row = batch.rows[place]
            batch.fetched[place] = self.pool.submit(lambda row=row: self.reads.read(row))  # type: ignore[misc]
        self._line.put(batch)

    def _on_device(self, batch: Batch, places: np.ndarray) -> np.ndarray:
        """Whether the exact path's pixels of these places are on the device already."""
        kinds = batch.kinds[places]
        equal = (kinds == -1) | np.isin(kinds, list(self.equal_kinds))
        there: np.ndarray = equal & np.isin(places, batch.kept)
        return there

    # ------------------------------------------------------------------ running again

    def _run(self) -> None:
        """Gather what waits, so that exact batches are not nearly empty."""
        waiting: list[Batch] = []
        images = 0
        while True:
            batch: Batch | None = None
            try:
                batch = self._line.get(timeout=_PATIENCE if waiting else None)
                if batch is None:
                    return
                waiting.append(batch)
                images += len(batch.flagged())
            except queue.Empty:
                pass
            if waiting and (images >= EXACT_BATCH or batch is None):
                try:
                    self._again(waiting)
                except BaseException as error:
                    for one in waiting:
                        if not one.done.done():
                            one.done.set_exception(error)
                waiting, images = [], 0

    def _again(self, batches: list[Batch]) -> None:
        import torch

        pixels: list[Any] = []
        homes: list[tuple[Batch, int]] = []
        for batch in batches:
            for place, future in batch.fetched.items():
                got = future.result()
                if isinstance(got, str):
                    batch.fail(place, got)
                else:
                    with self._lane.work():
                        pixels.append(torch.from_numpy(got.copy()).to(self.device)[None])
                    homes.append((batch, place))
            places = np.array([p for p in batch.flagged() if p not in batch.fetched], np.int64)
            if len(places):
                with self._lane.work():
                    where = torch.from_numpy(np.searchsorted(batch.kept, places))
                    pixels.append(batch.aside[where.to(self.device)])
                homes += [(batch, place) for place in places.tolist()]
        if homes:
            with self._lane.work():
                stacked = torch.cat(pixels)
            self._put(stacked, homes)
        for batch in batches:
            batch.aside = None
            self._finish(batch)

    def _put(self, pixels: Any, homes: list[tuple[Batch, int]]) -> None:
        for i, network in enumerate(self.networks):
            mine = [j for j, (batch, place) in enumerate(homes) if batch.drafts[i].flags[place]]
            if not mine:
                continue
            logits = self.exact_logits(i, pixels, mine)
            finite = np.isfinite(logits).all(axis=1)
            best = np.argsort(-logits, axis=1, kind="stable")[:, : network.k].astype(np.int32)
            stored = np.clip(logits, -FLOAT16_MAX, FLOAT16_MAX).astype(np.float16)
            for at, j in enumerate(mine):
                batch, place = homes[j]
                draft, row_logits, row_best = batch.drafts[i], stored[at], best[at]
                if not finite[at]:
                    batch.fail(place, f"not finite: {network.name} gave no number")
                    continue
                draft.changed += int(draft.topk[place, 0] != row_best[0])
                draft.logits[place], draft.topk[place] = row_logits, row_best

    def exact_logits(self, model: int, pixels: Any, rows: Sequence[int]) -> np.ndarray:
        """Logits float32 of some of the uint8 pixels (n, h, w, 3) on the device, in batches of one
        fixed size: a short one is filled up with its first image."""
        import torch

        parts = []
        with self._lock, self._lane.work():
            for at in range(0, len(rows), EXACT_BATCH):
                part = list(rows[at : at + EXACT_BATCH])
                filled = part + part[:1] * (EXACT_BATCH - len(part))
                (logits,) = self._steps[model].run(pixels[torch.tensor(filled, device=self.device)])
                parts.append(logits[: len(part)].cpu().numpy())
        return np.concatenate(parts)

    # ------------------------------------------------------------------ the sample

    def calibrate(
        self, batches: Sequence[Batch], waiting: Sequence[Future[np.ndarray | str]]
    ) -> None:
        """Find the thresholds and the kinds whose pixels are right, from a sample along both paths.

        ``batches`` hold the fast results with all their pixels aside; ``waiting`` the exact pixels.
        """
        import torch

        exact: list[Any] = []
        fast: list[list[np.ndarray]] = [[] for _ in self.networks]
        equal: dict[int, list[bool]] = {}
        answers = iter(waiting)
        for batch in batches:
            made = [next(answers).result() for _ in batch.rows]
            # A bad image fails in its own batch, with the reason.
            good = [
                place
                for place, one in enumerate(made)
                if not isinstance(one, str) and place not in batch.failures
            ]
            if good:
                with self._lane.work():
                    stacked = torch.from_numpy(np.stack([made[place] for place in good]))
                    pixels = stacked.to(self.device)
                    same = pixels == batch.aside[torch.tensor(good, device=self.device)]
                    found = same.flatten(1).all(1).cpu().tolist()
                exact.append(pixels)
                for kind, is_same in zip(batch.kinds[good].tolist(), found, strict=True):
                    equal.setdefault(kind, []).append(is_same)
                for i, draft in enumerate(batch.drafts):
                    fast[i].append(draft.logits[good].astype(np.float32))
            batch.aside = None
        self.equal_kinds = frozenset(
            kind for kind, found in equal.items() if len(found) >= ENOUGH and all(found)
        )
        if not exact:
            nothing = np.zeros((0, 2), np.float32)
            self.calibrations = tuple(
                calibrate(nothing, nothing, target=self.target) for _ in self.networks
            )
            return
        with self._lane.work():
            images = torch.cat(exact)
        self.calibrations = tuple(
            calibrate(
                np.concatenate(fast[i]),
                self.exact_logits(i, images, range(len(images))),
                target=self.target,
            )
            for i in range(len(self.networks))
        )


def _exact_step(network: Network) -> Callable[[Any], tuple[Any, ...]]:
    return lambda pixels: (network.exact(pixels),)
