"""The store of predictions: ``predictions/<images hash>/<model>@<key>/`` with parts in Parquet.

A folder is keyed by the images alone, so a new truth or column never re-runs a model; and by
weights, preprocessing and label space, so another checkpoint of one name never reuses a result.

``run.json`` holds checksums: of every other file, for a part one for each column and one for the rest,
so that reading the top k checks what it reads and no logits.
"""

from __future__ import annotations

import errno
import fnmatch
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from heldout.core.errors import BadFile, ExistsError, NotFound, UserError
from heldout.core.files import (
    atomic_folder,
    atomic_path,
    checksum,
    damaged,
    is_temporary,
    mapped,
    sealed,
    write_json,
)
from heldout.core.schema import read_facts
from heldout.core.workspace import slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import is_built_in
from heldout.data.testset.card import Card
from heldout.models.predictions.predictions import Predictions

if TYPE_CHECKING:
    from heldout.data.testset import TestSet

SCHEMA_VERSION = 1
AGAIN = "heldout verify --repair removes it; then predict or import again"
PART_ROWS = 16_384
"""Rows of one part: fixed, so that a resumed run writes the same parts."""
OWNER = "testset"
"""Key of ``run.json``: the test set of the workspace whose images these were."""


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
    versions: NotRequired[dict[str, str]]
    files: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class StoredRun:
    """One folder of the store: its ``run.json``, the outputs not yet read.

    ``files``  file -> checksum, or checksums by column; empty for runs stored before there were any
    """

    record: ClassVar[str] = "run"
    folder: Path
    run: RunFacts
    files: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, folder: Path) -> StoredRun:
        """The run in a folder; its outputs are not read."""
        run = read_facts(folder / "run.json", RunFacts, newest=SCHEMA_VERSION, fix=AGAIN)
        return cls(folder, run, run.pop("files", {}))

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
        if not own.exists():
            return LabelSpace.load(self.run["label_space"])
        if self.files.get(own.name) not in (None, checksum(mapped(own))):
            raise damaged(own, AGAIN)
        return LabelSpace.read(own)

    def matches(self, pattern: str) -> bool:
        """Whether a model argument means this run: the model's name, the full name, or a glob."""
        # Only a pattern with an @ means the folder: elsewhere a glob must not match digits of the key.
        name = self.folder.name if "@" in pattern else self.model
        return fnmatch.fnmatchcase(name, pattern)


class PredictionStore:
    """All predictions of a workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def owner(self, testset: TestSet) -> dict[str, str]:
        """What a run's record says of its test set: the name, if it is one of this workspace."""
        folder, ours = testset.folder, self.root.with_name("testsets").resolve()
        if folder is None or folder.resolve().parent != ours:
            return {}
        # A sample of a set has the set's folder.
        own = Card.of(folder).images_hash == testset.card.images_hash
        return {OWNER: testset.name} if own else {}

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
            known = StoredRun.open(folder)
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
        return StoredRun.open(folder)

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
            write_record(temporary, run)

    def runs(self, images_hash: str) -> list[StoredRun]:
        """All stored runs on these images, by folder name."""
        parent = self.root / images_hash[:12]
        if not parent.is_dir():
            return []
        return [
            StoredRun.open(folder)
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
            replace(run, run={**run.run, "model": run.folder.name})
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
        table = _read(run, {"image_id", "sha256"})
        return table if "sha256" in table.column_names else None

    def read(self, run: StoredRun, *, values: bool = True) -> Predictions:
        """Read the outputs of a stored run, without logits if not ``values``."""
        wide = {"logits"} if values else set()
        table = _read(run, {"image_id", "topk", "failure", "sha256"} | wide)
        if len(table) != run.run["n"]:
            raise BadFile(
                run.folder,
                f"holds {len(table)} rows, its run.json says {run.run['n']}",
                fix=AGAIN,
            )
        topk, space = _matrix(table["topk"], np.int32), run.label_space
        if topk.size and not -1 <= topk.min() <= topk.max() < len(space):
            raise BadFile(run.folder, f"holds classes that {space.name} does not have", fix=AGAIN)
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


def write_record(folder: Path, run: Mapping[str, Any]) -> None:
    """Write the ``run.json`` of a folder whose other files are there, with their checksums."""
    files: dict[str, Any] = {part.name: dict(_checksums(mapped(part))) for part in _parts(folder)}
    own = folder / "label_space.json"
    if own.exists():
        files[own.name] = checksum(mapped(own))
    write_json(folder / "run.json", sealed({**run, "files": files}))


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def _checksums(data: memoryview, names: Container[str] | None = None) -> Iterator[tuple[str, str]]:
    """Checksums of the columns of a Parquet file, and before them, under no name, of its end, which
    says where they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    yield "", checksum(data[-(8 + int.from_bytes(data[-8:-4], "little")) :])
    metadata = pq.read_metadata(pa.BufferReader(data))
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(metadata.num_columns)):
            name, start = column.path_in_schema.partition(".")[0], column.data_page_offset
            if names is None or name in names:
                # From a whole word on: sums of words that lie across two are three times slower.
                yield name, checksum(data[start & ~7 : start + column.total_compressed_size])


def _read(run: StoredRun, wanted: set[str]) -> Any:
    """The parts of a run as one table, of the wanted columns those that it has; checked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = _parts(run.folder)
    if not parts:
        raise BadFile(run.folder, "holds no parts", fix="predict or import again")
    tables = []
    try:
        for part in parts:
            data = mapped(part)
            known = run.files.get(part.name)
            if known is not None and any(
                known.get(name) != found for name, found in _checksums(data, wanted)
            ):
                raise damaged(part, AGAIN)
            file = pq.ParquetFile(pa.BufferReader(data))
            names = [name for name in file.schema_arrow.names if name in wanted]
            tables.append(file.read(columns=names))
            tables[-1].validate(full=True)
        table = pa.concat_tables(tables)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadFile(run.folder, f"cannot be read ({error})", fix=AGAIN) from None
    for name in wanted & {*table.column_names, "image_id", "topk", "failure"}:
        if name not in table.column_names or not _is_stored(name, table[name]):
            raise BadFile(run.folder, f"has no column {name} as it was stored", fix=AGAIN)
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
    reasons = map(predictions.failures.get, range(rows.start, rows.stop))
    none = pa.nulls(rows.stop - rows.start, pa.string())
    columns["failure"] = pa.array(reasons, pa.string()) if predictions.failures else none
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
