"""The test set: images, truths, typed columns, a card; a folder on disk. A pool is one too."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from heldout.core.errors import (
    BadFile,
    ExistsError,
    LabelError,
    NotApplicable,
    NotFound,
    UserError,
)
from heldout.core.files import (
    atomic_folder,
    atomic_path,
    canonical_json,
    checksum,
    damaged,
    held,
    is_set_aside,
    mapped,
    write_json,
)
from heldout.core.tables import read_parquet
from heldout.core.workspace import check_slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import is_built_in
from heldout.data.testset.card import (
    DECLARED,
    LABEL_SPACE,
    Card,
    card_file,
    checksums,
    same_tables,
)
from heldout.data.testset.columns import ColumnType, Declared, guess_type
from heldout.data.testset.hashing import combine, hash_table, images_hash
from heldout.data.testset.tables import (
    check_ids,
    check_truth,
    column_names,
    first_outside,
    image_schema,
    image_table,
    membership_schema,
    truth_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from heldout.data.images import ImageSource


@dataclass(frozen=True, eq=False)
class TestSet:
    """Images with their truths and columns. Build one with :func:`make_testset` or :func:`load`.

    A pool (its card says so) is the same before any image is chosen: :func:`make_pool`.

    ``space``   the label space of the truths; None for a pool that has none yet
    ``folder``  where it is saved, or None
    ``source``  where images come from that are not files of the folder, such as a renderer
    """

    __test__ = False  # pytest: not a test class

    card: Card
    images: pa.Table
    truths: Mapping[str, pa.Table]
    memberships: pa.Table
    space: LabelSpace | None
    folder: Path | None = None
    source: ImageSource | None = None

    def __repr__(self) -> str:
        columns = list(self.card.columns)
        parts = [
            f"{len(self):,} images",
            *([f"{len(self.space):,} classes of {self.space.name}"] if self.space else []),
            f"truths {', '.join(self.truths) or 'none'}",
            *([f"columns {', '.join(columns[:8])}{' …' * (len(columns) > 8)}"] if columns else []),
        ]
        return f"<TestSet {self.name}: {'; '.join(parts)}>"

    @property
    def name(self) -> str:
        """The set's name."""
        return self.card.name

    @property
    def content_hash(self) -> str:
        """SHA-256 over the hashes of all tables, as the card has it."""
        return self.card.content_hash

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def image_ids(self) -> Any:
        """The image ids as one Arrow string array, in the order of the images table."""
        return self.images["image_id"].combine_chunks()

    @cached_property
    def file_hashes(self) -> dict[str, str | None]:
        """Image id -> the SHA-256 of its file, null where it is not known."""
        hashes = self.images["sha256"].to_pylist()
        return dict(zip(self.image_ids.to_pylist(), hashes, strict=True))

    def class_of_images(self) -> dict[str, str]:
        """Image id -> its class in the default truth, the first of several; none without a truth."""
        found: dict[str, str] = {}
        for name in [self.card.default_truth] if self.truths else []:
            columns = (self.truth(name)[column].to_pylist() for column in ("image_id", "class_id"))
            for image, label in zip(*columns, strict=True):
                if label is not None:
                    found.setdefault(image, label)
        return found

    @property
    def label_space(self) -> LabelSpace:
        """The label space of the truths; a pool without one is refused."""
        if self.space is None:
            raise NotApplicable(
                f"pool {self.name} has no label space", fix="name one, or give its images classes"
            )
        return self.space

    def truth(self, name: str | None = None) -> pa.Table:
        """A truth by name; without one, the default."""
        name = name or self.card.default_truth
        if name not in self.truths:
            raise NotFound(
                f"{self.card.kind} {self.name} has no truth {name!r}",
                fix=f"it has {', '.join(self.truths) or 'none'}; add one with heldout import truth",
            )
        return self.truths[name]

    @property
    def images_root(self) -> Path | None:
        """Where the images are on disk; None where they are not."""
        root = self.card.images_root
        if root is None or (self.folder is None and not Path(root).is_absolute()):
            return None
        return (self.folder or Path()) / root

    def images_folder(self) -> Path:
        """Where the images are on disk; a set without them is refused."""
        if self.images_root is None:
            raise NotFound(
                f"{self.card.kind} {self.name} has no images on disk",
                fix="import or fetch it with its images",
            )
        return self.images_root

    def reordered(self, seed: int) -> TestSet:
        """The same set, not saved, with the rows of every table shuffled and hashed again."""
        random = np.random.default_rng(seed)

        def shuffled(table: Any) -> Any:
            return table.take(random.permutation(len(table)))

        return make_testset(
            self.card,
            images=shuffled(self.images),
            memberships=shuffled(self.memberships),
            truths={name: shuffled(table) for name, table in self.truths.items()},
            label_space=self.space,
        )


def make_testset(
    card: Card,
    *,
    images: pa.Table,
    truths: Mapping[str, pa.Table],
    label_space: LabelSpace | None,
    memberships: pa.Table | None = None,
) -> TestSet:
    """A test set from its tables: checks that they belong together and fills in the card.

    The card's hashes, column types (guessed where not given, but for pools), licence counts and
    truth names are set here, so that no two ways of building a set can disagree.
    """
    import pyarrow.compute as pc

    check_slug(card.name, f"a {card.kind}")
    if memberships is None:
        memberships = membership_schema().empty_table()
    check_ids(images["image_id"], f"the images table of {card.name}")
    known = images["image_id"].combine_chunks()
    tables = [(f"truth {name}", table) for name, table in truths.items()]
    for what, table in [*tables, ("the memberships table", memberships)]:
        example = first_outside(table["image_id"], known)
        if example is not None:
            raise UserError(
                f"{what} of {card.name} names image {example!r}, which is not in the set",
                fix="check that the file belongs to this set",
            )
    for name, table in truths.items():
        check_slug(name, "a truth")
        check_truth(table)
        if label_space is None:
            raise UserError(f"{card.name} has a truth and no label space", fix="name it")
        check_classes(table, label_space, f"truth {name} of {card.name}")
    for name in sorted(pc.unique(memberships["column"]).to_pylist()):
        if name in images.column_names:
            raise UserError(
                f"{name!r} of {card.name} is both a column and a membership",
                fix="give one of them another name",
            )
    hashes = {"images": hash_table(images)}
    hashes |= {f"truth/{name}": hash_table(table) for name, table in truths.items()}
    if len(memberships):
        hashes["memberships"] = hash_table(memberships)
    if card.stage == "testset":
        guessed = _guessed(images, memberships)
        if stated := declared(card, images, memberships, guessed).stated():
            hashes[DECLARED] = hashlib.sha256(canonical_json(stated).encode()).hexdigest()
        card = card.updated(columns={**card.columns, **guessed, **card.columns})
    # Where every image has its file's hash, nothing is left for a namespace to tell apart.
    namespace = card.images_namespace if images["sha256"].null_count else None
    licences = Counter(licence or "unknown" for licence in images["licence"].to_pylist())
    card = card.updated(
        truths={name: card.truths.get(name, {}) for name in truths},
        licences=dict(sorted(licences.items())),
        tables=hashes,
        images_namespace=namespace,
        images_hash=images_hash(images, namespace),
        content_hash=combine(hashes),
        label_space="" if label_space is None else label_space.name,
    )
    return TestSet(card, images, dict(truths), memberships, label_space)


def _guessed(images: pa.Table, memberships: pa.Table) -> dict[str, ColumnType]:
    """The types that the values of all columns suggest."""
    import pyarrow.compute as pc

    members = sorted(pc.unique(memberships["column"]).to_pylist())
    return {name: guess_type(images[name]) for name in column_names(images)} | {
        name: ColumnType(kind="categorical", multi=True) for name in members
    }


def declared(
    card: Card,
    images: pa.Table,
    memberships: pa.Table,
    guessed: Mapping[str, ColumnType] | None = None,
) -> Declared:
    """What a card says of its columns and their values do not; columns without values say nothing."""
    guessed = _guessed(images, memberships) if guessed is None else guessed
    empty = {n for n in images.column_names if images[n].null_count == len(images)}
    types = {n: t for n, t in card.columns.items() if n in guessed and n not in empty}
    return Declared(
        columns={name: kind for name, kind in types.items() if kind != guessed[name]},
        factors=card.factors,
        clusters=card.clusters,
        units=card.units,
    )


def imported(
    name: str,
    *,
    label_space: LabelSpace,
    images: Mapping[str, Any],
    truth: pa.Table,
    source: str,
    sha256: str,
    truth_name: str = "original",
    provenance: Mapping[str, Any] | None = None,
    memberships: pa.Table | None = None,
    **card: Any,
) -> TestSet:
    """A test set as a file or folder has it: images, one truth, and where these came from.

    ``images``      the columns of the images table
    ``source``      the file or folder that the truth was read from; ``sha256`` is its hash
    ``provenance``  what else is known of the truth, such as its version, and further counts
    ``card``        further fields of the card; its counts are added to those of images and classes
    """
    table = image_table(images)
    counts = {"images": len(table), "classes": len(truth["class_id"].drop_null().unique())}
    known = {"kind": "single", "source": source, "sha256": sha256, "version": "unknown"}
    said = dict(provenance or {})
    said["counts"] = counts | said.get("counts", {})
    fields = {"parents": ({"file": source, "sha256": sha256},), **card}
    fields["counts"] = counts | card.get("counts", {})
    return make_testset(
        Card(name=name, label_space="", truths={truth_name: known | said}, **fields),
        images=table,
        truths={truth_name: truth},
        label_space=label_space,
        memberships=memberships,
    )


def make_pool(
    name: str,
    *,
    images: pa.Table,
    memberships: pa.Table | None = None,
    truths: Mapping[str, pa.Table] | None = None,
    label_space: LabelSpace | None = None,
    columns: Mapping[str, ColumnType] | None = None,
    images_root: Path | None = None,
    citation: str = "",
    facts: Mapping[str, Any] | None = None,
) -> TestSet:
    """A pool from its tables: candidates with what is known of them.

    ``facts``  where it came from, as JSON: source, files, options, counts, what was left out
    """
    card = Card(
        name=name,
        label_space="",
        columns=dict(columns or {}),
        images_root=None if images_root is None else images_root.resolve().as_posix(),
        citation=citation,
        stage="pool",
        facts=dict(facts or {}),
    )
    return make_testset(
        card,
        images=images,
        truths=truths or {},
        label_space=label_space,
        memberships=memberships,
    )


def check_classes(truth: Any, label_space: LabelSpace, where: str) -> None:
    """Refuse a truth that names a class which its label space does not have."""
    import pyarrow as pa

    known = pa.array(label_space.ids, pa.string())
    for column in ("class_id", "correct", "unclear", "wrong"):
        values = truth[column].combine_chunks()
        if pa.types.is_list(values.type):
            values = values.flatten()
        foreign = first_outside(values.drop_null(), known)
        if foreign is not None:
            raise LabelError(
                f"{where} has class {foreign!r}, which label space {label_space.name} does not have",
                fix="name the right label space with --classes",
            )


def save(testset: TestSet, folder: Path, *, replace: bool = False) -> TestSet:
    """Write a set to ``folder``. The same content again changes nothing; another is refused.

    A folder that holds anything else is refused even with ``replace``. The images stay where they
    are: ``images_root`` is written relative to the new folder.
    """
    with held(folder):
        return _save(testset, folder, replace=replace)


def _save(testset: TestSet, folder: Path, *, replace: bool) -> TestSet:
    card = testset.card
    there = (folder / card.file).exists()
    if not there and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExistsError(f"{folder} exists and is not a {card.kind}", fix="name another folder")
    if there and not replace:
        return _known(testset, folder)
    with atomic_folder(folder, replace=replace) as temporary:
        write(testset, temporary, folder)
        if (folder / "images").is_dir():  # links, not a move: an interruption must lose nothing
            shutil.copytree(folder / "images", temporary / "images", copy_function=os.link)
    return load(folder)


def write(testset: TestSet, folder: Path, place: Path | None = None) -> None:
    """Write a set's files into a new folder that this process holds, and may then move to ``place``."""
    import pyarrow.parquet as pq

    pool = testset.card.stage == "pool"
    tables = {"images": testset.images}
    if pool or len(testset.memberships):
        tables["memberships"] = testset.memberships
    tables |= {f"truth/{name}": table for name, table in testset.truths.items()}
    if pool:
        counts = {name: len(table) for name, table in tables.items()}
        testset = dataclasses.replace(testset, card=testset.card.updated(counts=counts))
    (folder / "truth").mkdir()
    for name, table in tables.items():
        path = folder / f"{name}.parquet"
        pq.write_table(table, path, compression="zstd" if pool else "snappy")
    if testset.space is not None and not is_built_in(testset.space):
        write_json(folder / LABEL_SPACE, testset.space.to_dict())
    _card_for(testset, place or folder).write(folder)


def _known(testset: TestSet, folder: Path) -> TestSet:
    """The set in ``folder`` if it is this one, perhaps with truths added since; else refused."""
    stored, card = load(folder), testset.card
    known = stored.card
    other = ""
    if not same_tables(known, card):
        other = (
            f"another {card.kind} ({known.content_hash[:12]}, this one is {card.content_hash[:12]})"
        )
    elif account(known) != account(card):
        other = "the same images, made from other sources or in another way"
    elif stored.space != testset.space and (
        stored.label_space.fingerprint != testset.label_space.fingerprint
    ):
        other = f"this {card.kind} with other classes, or with classes in another order"
    elif card.stage == "pool" and stored.space != testset.space:  # people are asked with them
        other = "this pool with other names, meanings or links of its classes"
    if other:
        raise ExistsError(f"{folder} holds {other}", fix="use another --name, or --replace")
    return stored


def account(card: Card) -> str:
    """What a card says of how its set was made, wherever its files were."""
    facts = {key: value for key, value in card.facts.items() if key != "files"}
    stated: list[Any] = [
        facts,
        card.recipe,
        card.counts,
        *map(_by_hash, card.parents),
    ]
    if card.stage == "pool":  # saving counts the rows of its tables
        stated[2:] = [card.name, msgspec.to_builtins(card.columns), card.citation]
    return canonical_json(stated)


def _by_hash(parent: Mapping[str, Any]) -> dict[str, Any]:
    """A parent without what it is called, where its hash says what it is."""
    named = ("file", "name") if {"content_hash", "sha256"} & parent.keys() else ()
    return {key: value for key, value in parent.items() if key not in named}


def _card_for(testset: TestSet, folder: Path) -> Card:
    """The card as ``folder`` writes it: images that lie in another set's folder stay there."""
    root = testset.images_root
    if root is None:
        return testset.card
    stated = Path(str(testset.card.images_root))
    if root.resolve() == (folder / stated).resolve() and not stated.is_absolute():
        return testset.card
    moved = os.path.relpath(root.resolve(), folder.resolve())
    return testset.card.updated(images_root=Path(moved).as_posix(), documents={})


def load(folder: Path) -> TestSet:
    """Read a test set or a pool from its folder; hashes are as the card has them.

    A folder that is replaced meanwhile is read again: nothing of the old one and the new one is mixed.
    """
    while True:
        place = _place(folder)
        try:
            found = _load(folder)
        except (UserError, FileNotFoundError):
            if _place(folder) == place:
                raise
        else:
            if _place(folder) == place:
                return found


def _place(folder: Path) -> int | None:
    return folder.stat().st_ino if folder.exists() else None


def _load(folder: Path) -> TestSet:
    if not card_file(folder).is_file():
        fix = "heldout ls lists what there is; heldout import makes one"
        for path in sorted(folder.parent.glob("*")):
            if is_set_aside(path, folder):
                fix = f"its replacement was broken off; rename {path.name} to {folder.name}"
        raise NotFound(f"no test set or pool at {folder}", fix=fix)
    card = Card.of(folder)
    tables = {}
    for name, schema in schemas_of(card).items():
        tables[name] = read_parquet(folder / f"{name}.parquet", schema=schema)
        try:
            check_bytes(folder, f"{name}.parquet")
        except BadFile:
            # Other bytes are not damage where the rows are those that the card was written for.
            empty = hash_table(schema.empty_table())
            if hash_table(tables[name]) != card.tables.get(name, empty):
                raise
    if card.stage == "pool":
        # A pool's head does not state it, and predictions are stored by it.
        card = card.updated(images_hash=images_hash(tables["images"], card.images_namespace))
    return TestSet(
        card,
        tables["images"],
        {name: tables[f"truth/{name}"] for name in card.truths},
        tables.get("memberships", membership_schema().empty_table()),
        load_space(folder, card),
        folder,
    )


def check_bytes(folder: Path, name: str) -> None:
    """Refuse a file of a set's folder that is not as it was written, where the card says how."""
    path = folder / name
    if checksums(folder).get(name) not in (None, checksum(mapped(path))):
        raise damaged(path, "restore it, or import or build the set again with --replace")


def schemas_of(card: Card) -> dict[str, Any]:
    """The tables of a card's folder, by the names under which it has their hashes."""
    own = {"images": image_schema, "memberships": membership_schema}
    return {name: own.get(name, truth_schema)() for name in card.table_names}


def load_space(folder: Path, card: Card) -> LabelSpace | None:
    """The label space of a set's folder: its own file, else a built-in one; None where none is named."""
    own = folder / LABEL_SPACE
    if own.exists():
        check_bytes(folder, own.name)
        return LabelSpace.read(own)
    return LabelSpace.load(card.label_space) if card.label_space else None


def add_truth(testset: TestSet, name: str, table: Any, *, provenance: dict[str, Any]) -> TestSet:
    """Add a truth to a saved set. Truths are only added: another one of that name is refused."""
    import pyarrow.parquet as pq

    folder = testset.folder
    if folder is None:
        raise UserError(
            f"test set {testset.name} is not saved", fix="save it before adding a truth"
        )
    check_slug(name, "a truth")
    with held(folder):
        testset = load(folder)  # what is on disk now: a truth may have been added meanwhile
        grown = make_testset(
            testset.card.updated(truths={**testset.card.truths, name: provenance}),
            images=testset.images,
            truths={**testset.truths, name: table},
            label_space=testset.label_space,
            memberships=testset.memberships,
        )
        if name in testset.truths:
            if grown.card.tables[f"truth/{name}"] == testset.card.tables[f"truth/{name}"]:
                return testset
            raise ExistsError(
                f"test set {testset.name} has another truth {name!r}", fix="use another --name"
            )
        change = {"content_hash": testset.card.content_hash, "then": f"added truth {name}"}
        card = grown.card.updated(history=(*testset.card.history, change))
        with atomic_path(folder / "truth" / f"{name}.parquet") as temporary:
            pq.write_table(table, temporary)
        card.write(folder)  # last: a truth counts once the card names it
    return load(folder)
