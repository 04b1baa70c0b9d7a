"""The store of predictions: ``predictions/<images hash>/<model>@<key>/`` with parts in Parquet.

A folder is keyed by the images alone, so a new truth or column never re-runs a model; and by
weights, preprocessing and label space, so another checkpoint of one name never reuses a result.
"""

from __future__ import annotations

import errno
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypedDict, cast

import numpy as np
from msgspec import Meta

from heldout.core.errors import BadFile, ExistsError, NotFound, UserError
from heldout.core.files import (
    atomic_folder,
    atomic_path,
    is_temporary,
    write_json,
)
from heldout.core.schema import read_facts
from heldout.core.tables import read_parquet
from heldout.core.workspace import slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import is_built_in
from heldout.models.predictions.predictions import Predictions

SCHEMA_VERSION = 1
PART_ROWS = 16_384
"""Rows of one part: fixed, so that a resumed run writes the same parts."""
_AGAIN = "predict or import again"


class RunFacts(TypedDict):
    """``run.json``; how the model ran stands beside these, such as ``device`` and ``versions``."""

    model: Annotated[str, Meta(min_length=1)]
    images_hash: str
    predictions_hash: str
    n: Annotated[int, Meta(ge=0)]
    failed: Annotated[int, Meta(ge=0)]
    top_k: Annotated[int, Meta(ge=0)]
    keeps: Literal["logits", "topk"]
    label_space: str
    identity: dict[str, Any]
    notes: NotRequired[tuple[str, ...]]
    order: NotRequired[str]


def read_run(folder: Path) -> StoredRun:
    """The run that a folder holds; its outputs are not read."""
    path = folder / "run.json"
    return StoredRun(folder, read_facts(path, RunFacts, newest=SCHEMA_VERSION, fix=_AGAIN))


@dataclass(frozen=True)
class StoredRun:
    """One folder of the store: its ``run.json``, the outputs not yet read."""

    record: ClassVar[str] = "run"
    folder: Path
    run: RunFacts

    def to_dict(self) -> RunFacts:
        """As a JSON object."""
        return self.run

    @property
    def model(self) -> str:
        """The model's name."""
        return self.run["model"]

    @property
    def label_space(self) -> LabelSpace:
        """The classes that the model answers in."""
        own = self.folder / "label_space.json"
        return LabelSpace.read(own) if own.exists() else LabelSpace.load(self.run["label_space"])

    def matches(self, pattern: str) -> bool:
        """Whether a model argument means this run: the model's name, the full name, or a glob."""
        # Only a pattern with an @ means the folder: elsewhere a glob must not match digits of the key.
        name = self.folder.name if "@" in pattern else self.model
        return fnmatch.fnmatchcase(name, pattern)


class PredictionStore:
    """All predictions of a workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, images_hash: str, model: str, key: str) -> Path:
        """Where a model's run on these images belongs: its name as a slug, and its key."""
        return self.root / images_hash[:12] / f"{slug(model)}@{key}"

    def has(self, images_hash: str, model: str, key: str) -> bool:
        """Whether a model's run on these images is stored."""
        return (self.folder(images_hash, model, key) / "run.json").is_file()

    def write(
        self, predictions: Predictions, *, images_hash: str, replace: bool = False
    ) -> StoredRun:
        """Store predictions. The same again is no change; other outputs under that key are refused."""
        folder = self.folder(images_hash, predictions.model, predictions.key)
        if (folder / "run.json").exists() and not replace:
            known = read_run(folder)
            if known.run["predictions_hash"] == predictions.hash:
                return known
            raise ExistsError(
                f"{folder} holds other outputs of {predictions.model}", fix="use --replace"
            )
        run = {
            **predictions.run,
            "schema_version": SCHEMA_VERSION,
            "model": predictions.model,
            "images_hash": images_hash,
            "predictions_hash": predictions.hash,
            "n": len(predictions),
            "failed": len(predictions.failures),
            "top_k": int(predictions.topk.shape[1]),
            "keeps": "logits" if predictions.logits is not None else "topk",
            "label_space": predictions.label_space.name,
            "label_space_fingerprint": predictions.label_space.fingerprint,
            "identity": dict(predictions.identity),
            "part_rows": PART_ROWS,
        }
        # A folder without its record was left by an interrupted removal: nothing reads it.
        torn = folder.is_dir() and not (folder / "run.json").exists()
        try:
            self._write(folder, predictions, run, replace=replace or torn)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # Another process stored this run meanwhile: the same outputs are no conflict.
            return self.write(predictions, images_hash=images_hash, replace=replace)
        return StoredRun(folder, cast("RunFacts", run))

    def _write(
        self, folder: Path, predictions: Predictions, run: dict[str, Any], *, replace: bool
    ) -> None:
        with atomic_folder(folder, replace=replace) as temporary:
            for part, start in enumerate(range(0, len(predictions), PART_ROWS)):
                rows = slice(start, min(start + PART_ROWS, len(predictions)))
                with atomic_path(temporary / f"part-{part:05d}.parquet") as path:
                    write_part(path, predictions, rows)
            if not is_built_in(predictions.label_space):
                write_json(temporary / "label_space.json", predictions.label_space.to_dict())
            write_json(temporary / "run.json", run)

    def runs(self, images_hash: str) -> list[StoredRun]:
        """All stored runs on these images, by folder name."""
        parent = self.root / images_hash[:12]
        if not parent.is_dir():
            return []
        return [
            read_run(folder)
            for folder in sorted(parent.iterdir())
            if not is_temporary(folder) and (folder / "run.json").is_file()
        ]

    def select(
        self,
        images_hash: str,
        patterns: Sequence[str],
        *,
        testset: str,
        exclude: Sequence[str] = (),
    ) -> list[StoredRun]:
        """The runs that model arguments mean, less what is excluded.

        That is names, globs, ``all``, and full run names ``model@key``: a run that is named so is
        called so, as two runs of one model may be asked for.
        """
        runs = self.runs(images_hash)
        if not runs:
            raise NotFound(
                f"no predictions for {testset} in {self.root}",
                fix="import some with heldout import predictions",
            )
        chosen: dict[Path, StoredRun] = {}
        for pattern in patterns or ["all"]:
            found = [run for run in runs if pattern == "all" or run.matches(pattern)]
            if not found:
                known = ", ".join(sorted({run.model for run in runs})[:8])
                raise NotFound(
                    f"no predictions of {pattern!r} for {testset}", fix=f"there is {known}"
                )
            chosen |= {run.folder: run for run in found}
        kept = [
            StoredRun(run.folder, {**run.run, "model": run.folder.name})
            if run.folder.name in patterns
            else run
            for run in chosen.values()
            if not any(run.matches(glob) for glob in exclude)
        ]
        names = [run.model for run in kept]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            keys = ", ".join(run.folder.name for run in kept if run.model == twice)
            raise UserError(
                f"{twice} has several stored runs for {testset}: {keys}",
                fix="name one of these, or remove one with heldout prune -m NAME --delete",
            )
        return sorted(kept, key=lambda run: run.model)

    def digests(self, run: StoredRun) -> Any:
        """image_id and sha256 of the bytes that a run has read, as a table; None if not recorded."""
        table = _parts(run, {"image_id", "sha256"})
        return table if "sha256" in table.column_names else None

    def read(self, run: StoredRun, *, values: bool = True) -> Predictions:
        """Read the outputs of a stored run, without logits if not ``values``."""
        wide = {"logits"} if values else set()
        table = _parts(run, {"image_id", "topk", "failure", "sha256"} | wide)
        if len(table) != run.run["n"]:
            raise BadFile(
                run.folder,
                f"holds {len(table)} rows, its run.json says {run.run['n']}",
                fix=_AGAIN,
            )
        topk, space = _matrix(table["topk"], np.int32), run.label_space
        if topk.size and not -1 <= topk.min() <= topk.max() < len(space):
            raise BadFile(run.folder, f"holds classes that {space.name} does not have", fix=_AGAIN)
        reasons = table["failure"].to_pylist() if table["failure"].null_count < len(table) else []
        return Predictions(
            model=run.model,
            image_ids=table["image_id"].combine_chunks(),
            topk=topk,
            logits=_matrix(table["logits"]) if "logits" in table.column_names else None,
            label_space=space,
            failures={row: reason for row, reason in enumerate(reasons) if reason is not None},
            identity=run.run["identity"],
            run=run.run,
            digests=table["sha256"].to_pylist() if "sha256" in table.column_names else None,
            stored_hash=run.run["predictions_hash"],
        )


def _parts(run: StoredRun, wanted: set[str]) -> Any:
    """The parts of a run as one table, of the wanted columns those that it has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = sorted(run.folder.glob("part-*.parquet"))
    if not paths:
        raise BadFile(run.folder, "holds no parts", fix=_AGAIN)
    try:
        names = [name for name in pq.read_schema(paths[0]).names if name in wanted]
        parts = [read_parquet(path, columns=names) for path in paths]
        table = pa.concat_tables(parts)
    except (pa.ArrowException, OSError) as error:
        raise BadFile(run.folder, f"cannot be read ({error})", fix=_AGAIN) from None
    for name in wanted & {*names, "image_id", "topk", "failure"}:
        if name not in names or not _is_stored(name, table[name]):
            raise BadFile(run.folder, f"has no column {name} as it was stored", fix=_AGAIN)
    return table


def _is_stored(name: str, column: Any) -> bool:
    """Whether a column has the type and the nulls that :func:`write_part` gives it."""
    from pyarrow import types

    if name in ("topk", "logits"):
        kind = types.is_integer if name == "topk" else types.is_floating
        whole = types.is_fixed_size_list(column.type) and kind(column.type.value_type)
        return bool(whole and not column.null_count)
    return bool(types.is_string(column.type) and not (name == "image_id" and column.null_count))


def write_part(path: Path, predictions: Predictions, rows: slice) -> None:
    """Write one part: image_id, topk, logits where kept, failure, sha256 if known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "image_id": predictions.image_ids[rows.start : rows.stop],
        "topk": _lists(predictions.topk[rows].astype(np.int32)),
    }
    if predictions.logits is not None:
        columns["logits"] = _lists(predictions.logits[rows])
    reasons = [predictions.failures.get(row) for row in range(rows.start, rows.stop)]
    columns["failure"] = pa.array(reasons, pa.string())
    if predictions.digests is not None:
        columns["sha256"] = pa.array(predictions.digests[rows], pa.string())
    # Neither dictionaries nor compression nor bounds help with logits; plain pages read at memory
    # speed, and finding the bounds takes as long as writing.
    pq.write_table(
        pa.table(columns),
        path,
        use_dictionary=False,
        compression={"logits": "none"} if "logits" in columns else "zstd",
        write_statistics=["image_id", "failure"],
    )


def _lists(values: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(values).ravel()), values.shape[1]
    )


def _matrix(column: Any, dtype: Any = None) -> np.ndarray:
    array = column.combine_chunks()
    values: np.ndarray = array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), -1)
    return values if dtype is None else values.astype(dtype, copy=False)
