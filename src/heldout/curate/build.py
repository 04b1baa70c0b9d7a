"""Running a recipe: the card, hashes, licences, origins, order and files of its set."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from heldout.core.context import Context, Result
from heldout.core.engine import Executor, Progress, no_progress
from heldout.core.errors import ExistsError, HeldoutError, UserError
from heldout.core.files import atomic_folder, held, remove_folder, sha256_file
from heldout.curate.recipe import BuildContext, Recipe, RecipeResult, Rendered, Source, Sources
from heldout.data.testset.card import Card, same_tables
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_schema, membership_schema
from heldout.data.testset.testset import TestSet, account, load, make_testset, write

UNKNOWN = "unknown"
_INHERITED = ("source", "licence", "attribution")


def combine_licences(licences: Sequence[str | None]) -> str | None:
    """The terms of an image made from several: all of theirs, joined as SPDX does with ``AND``.

    An unknown licence among known ones is said, as nothing may be copied under it.

    >>> combine_licences(["CC-BY-4.0", "CC0-1.0", "CC-BY-4.0"])
    'CC-BY-4.0 AND CC0-1.0'
    >>> combine_licences(["MIT", None])
    'MIT AND unknown'
    """
    if all(licence is None for licence in licences):
        return None
    return " AND ".join(sorted({licence or UNKNOWN for licence in licences}))


def combine_texts(texts: Sequence[str | None]) -> str | None:
    """Attributions or sources of several images in one line, each once, in the order given.

    >>> combine_texts(["Ann", None, "Ben", "Ann"])
    'Ann; Ben'
    """
    return "; ".join(dict.fromkeys(text for text in texts if text)) or None


def inherited(result: RecipeResult, sources: Sources) -> dict[str, Any]:
    """``source``, ``licence`` and ``attribution`` of every image, from its origins.

    Arrow arrays of texts in the order of the recipe's images. An origin that names no image of a
    source is the recipe's fault.
    """
    import pyarrow as pa

    tables = {role: getattr(source, "images", None) for role, source in sources.items()}
    ids = result.images["image_id"].combine_chunks()
    if result.origins is None:
        return _from_pool(ids, tables.get("pool"))
    rows: dict[tuple[str, str], tuple[str | None, ...]] = {}
    for role, table in tables.items():
        if table is not None:
            columns = [table[name].to_pylist() for name in ("image_id", *_INHERITED)]
            rows |= {(role, image): tuple(v) for image, *v in zip(*columns, strict=True)}
    made: dict[str, list[str | None]] = {name: [] for name in _INHERITED}
    for image in ids.to_pylist():
        places = result.origins.get(image)
        if not places:
            raise HeldoutError(f"image {image!r} has no origin")
        for place in places:
            if place not in rows:
                raise _no_origin(image, *place)
        source, licence, attribution = zip(*(rows[place] for place in places), strict=True)
        made["source"].append(combine_texts(source))
        made["licence"].append(combine_licences(licence))
        made["attribution"].append(combine_texts(attribution))
    return {name: pa.array(values, pa.string()) for name, values in made.items()}


def _no_origin(image: str, role: str, origin: str) -> HeldoutError:
    return HeldoutError(f"image {image!r} has the origin {origin!r}, which {role} does not have")


def _from_pool(ids: Any, table: Any) -> dict[str, Any]:
    """What :func:`inherited` gives for images that are the pool's own, for any number of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array([], pa.string()) if table is None else table["image_id"].combine_chunks()
    places = pc.index_in(ids, value_set=known)
    if places.null_count:
        image = ids.filter(pc.is_null(places))[0].as_py()
        raise _no_origin(image, "pool", image)
    made = {}
    for name in _INHERITED if table is not None else ():
        values = table[name].combine_chunks().take(places).cast(pa.string())
        empty = pc.fill_null(pc.equal(values, ""), False)
        other = pa.scalar(UNKNOWN if name == "licence" else None, pa.string())
        made[name] = pc.if_else(empty, other, values)
    return made


ORIGIN = "origin"
"""The membership that names the origins of images that were made, as ``role:image_id``."""


class BuiltSet(NamedTuple):
    """A test set that was built, and what its recipe tells the caller beyond it."""

    testset: TestSet
    report: Any


def build_recipe(
    recipe: Recipe,
    sources: Source | Sources,
    *,
    folder: Path,
    runs: Path,
    parameters: Any = None,
    seed: int = 0,
    name: str | None = None,
    executor: Executor | None = None,
    progress: Progress = no_progress,
    replace: bool = False,
) -> BuiltSet:
    """Build a test set and write it to ``folder``, in one step.

    ``sources``  by role, or the one pool
    ``runs``     where resumable work is kept; the same call again goes on where it was ended
    ``name``     the set's name; the folder's by default

    The same request again changes nothing; another set in ``folder`` is refused unless
    ``replace``. Rows are written in the order of their ids, so that neither the order of the
    sources nor the recipe's own matters.
    """
    given = sources if isinstance(sources, Mapping) else {"pool": sources}
    if not {*recipe.roles} - {*recipe.optional} <= given.keys() <= {*recipe.roles}:
        raise UserError(
            f"recipe {recipe.name} was given {', '.join(sorted(given)) or 'nothing'}",
            fix=f"give {', '.join(recipe.roles)}",
        )
    chosen = recipe.read({}) if parameters is None else parameters
    if not isinstance(chosen, recipe.parameters):
        raise UserError(
            f"recipe {recipe.name} was given parameters of {type(chosen).__name__}",
            fix=f"give {recipe.parameters.__name__}",
        )
    stated = _stated(recipe, chosen, seed)
    _check_free(folder, None if replace else stated)
    with ExitStack() as stack:
        context = BuildContext(runs, executor, progress, stack)
        built = recipe.build(given, chosen, seed=seed, context=context)
        named = name or folder.name
        testset = assemble(recipe, given, chosen, seed, built, name=named, folder=folder)
        with held(folder):
            testset = _save(testset, built, folder, replace=replace)
    return BuiltSet(testset, built.report)


def _stated(recipe: Recipe, parameters: Any, seed: int) -> dict[str, Any]:
    """What a card says of how its set was made."""
    recorded = recipe.recorded(parameters)
    return {"name": recipe.name, "version": recipe.version, "parameters": recorded, "seed": seed}


def _check_free(folder: Path, stated: Mapping[str, Any] | None) -> None:
    """Refuse a folder that holds what this recipe cannot give, before any work."""
    if (folder / "card.json").exists():
        known = Card.read(folder / "card.json")
        if stated is not None and known.recipe != stated:
            raise ExistsError(
                f"{folder} holds another test set ({known.content_hash[:12]}), made otherwise",
                fix="use another --name, or --replace",
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExistsError(f"{folder} exists and is not a test set", fix="name another folder")


def run_recipe(recipe: Recipe, sources: Source | Sources, **request: Any) -> TestSet:
    """The test set alone of :func:`build_recipe`."""
    return build_recipe(recipe, sources, **request).testset


def build_result(
    testset: TestSet,
    folder: Path,
    records: Sequence[Any],
    context: Context,
    *,
    brief: Sequence[Any] | None = None,
    lines: Sequence[str] = (),
) -> Result:
    """What a verb gives back that has built a test set; its notes and its size are said."""
    for text in testset.card.notes:
        context.note(text)
    context.say(
        f"{folder}: {len(testset):,} images of {testset.card.counts['classes']} classes, "
        f"{testset.card.content_hash[:12]}"
    )
    return Result(records=records, brief=brief, lines=lines, value=testset)


def assemble(
    recipe: Recipe,
    sources: Sources,
    parameters: Any,
    seed: int,
    built: RecipeResult,
    *,
    name: str,
    folder: Path,
) -> TestSet:
    """The test set that a recipe's rows make, with its card; not yet written."""
    try:
        filled = inherited(built, sources)
    except HeldoutError as error:
        raise HeldoutError(f"recipe {recipe.name}: {error}") from None
    images = _images(built, filled)
    memberships = built.memberships or membership_schema().empty_table()
    columns: dict[str, ColumnType] = {**_column_types(sources), **built.columns}
    if built.origins is not None:
        memberships = _with_origins(memberships, built)
        columns[ORIGIN] = ColumnType(kind="text", multi=True)
    used = {*images.column_names, *memberships["column"].to_pylist()}
    truths = {truth: made.table for truth, made in built.truths.items()}
    first = next(iter(truths.values()), None)
    reserved = sorted({*sources, "images", "classes"} & set(built.counts))
    if reserved:
        raise HeldoutError(f"recipe {recipe.name} counts a stage {reserved[0]!r}, which is taken")
    card = Card(
        name=name,
        label_space=built.label_space.name,
        recipe=_stated(recipe, parameters, seed),
        parents=tuple(
            {
                "name": sources[role].name,
                "content_hash": sources[role].content_hash,
                "relation": role,
            }
            for role in recipe.roles
            if role in sources
        ),
        counts={
            **{role: len(sources[role]) for role in recipe.roles if role in sources},
            **built.counts,
            "images": len(images),
            "classes": 0 if first is None else len(set(first["class_id"].drop_null().to_pylist())),
        },
        columns={column: kind for column, kind in sorted(columns.items()) if column in used},
        truths={
            truth: {"source": f"recipe {recipe.name}", **made.provenance}
            for truth, made in built.truths.items()
        },
        citation=built.citation or _citations(sources),
        notes=built.notes,
        images_root=_images_root(built, sources, folder),
        images_namespace=_card(sources.get("pool")).images_namespace,
        documents={
            path: hashlib.sha256(data).hexdigest() for path, data in built.documents.items()
        },
        factors=built.factors,
        clusters=built.clusters,
        units=built.units,
    )
    return make_testset(
        card,
        images=images,
        truths={truth: _sorted(table, "image_id", "class_id") for truth, table in truths.items()},
        label_space=built.label_space,
        memberships=_sorted(memberships, "image_id", "column", "value"),
    )


def _sorted(table: Any, *keys: str) -> Any:
    """Rows in the order of ``keys``, in one piece and without metadata: equal rows, equal bytes."""
    ordered = table.sort_by([(key, "ascending") for key in keys])
    return ordered.combine_chunks().replace_schema_metadata(None)


def _images(built: RecipeResult, filled: dict[str, Any]) -> Any:
    """The images table: fixed columns first, what is missing taken from origins and files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    given = built.images
    if built.files is not None:
        ids = given["image_id"].to_pylist()
        for name, known in _file_facts(built.files).items():
            filled[name] = pa.array(
                [known.get(image) for image in ids], image_schema().field(name).type
            )
    arrays: dict[str, Any] = {}
    for field in image_schema():
        column = pa.nulls(len(given), field.type)
        if field.name in given.column_names:
            column = given[field.name].combine_chunks().cast(field.type)
        arrays[field.name] = pc.coalesce(column, filled.get(field.name, column))
    for name in given.column_names:
        if name not in arrays:
            arrays[name] = given[name]
    return _sorted(pa.table(arrays), "image_id")


def _file_facts(files: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """``path``, ``sha256``, ``width`` and ``height`` of the images that were rendered."""
    from PIL import Image

    facts: dict[str, dict[str, Any]] = {"path": {}, "sha256": {}, "width": {}, "height": {}}
    for image, file in files.items():
        with Image.open(file) as opened:
            ending = f".{(opened.format or 'bin').lower()}".replace(".jpeg", ".jpg")
            facts["width"][image], facts["height"][image] = opened.size
        facts["path"][image] = _safe(image + ending)
        facts["sha256"][image] = sha256_file(file)
    return facts


def _safe(path: str) -> str:
    """``path`` if it stays below the folder of images on any system."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or any(c in path for c in '\\:*?"<>|\0'):
        raise UserError(f"{path!r} is not a file name", fix="use ids of letters, digits and -_.@/")
    return path


def _column_types(sources: Sources) -> dict[str, ColumnType]:
    types: dict[str, ColumnType] = {}
    for source in sources.values():
        types |= _card(source).columns
    return types


def _with_origins(memberships: Any, built: RecipeResult) -> Any:
    import pyarrow as pa

    if ORIGIN in memberships["column"].to_pylist():
        raise HeldoutError(f"a recipe gives the membership {ORIGIN!r}, which is taken")
    rows = [
        (image, ORIGIN, f"{role}:{origin}")
        for image in built.images["image_id"].to_pylist()
        for role, origin in (built.origins or {})[image]
    ]
    columns = list(zip(*sorted(set(rows)), strict=True)) or [(), (), ()]
    made = pa.table([pa.array(c, pa.string()) for c in columns], schema=membership_schema())
    return pa.concat_tables([memberships.select(membership_schema().names), made])


def _card(source: Source | None) -> Card:
    """The card of a pool; an empty one for other sources."""
    card = getattr(source, "card", None)
    return card if isinstance(card, Card) else Card(name="", label_space="")


def _citations(sources: Sources) -> str:
    texts = [_card(source).citation for source in sources.values()]
    return "; ".join(dict.fromkeys(text for text in texts if text))


def _images_root(built: RecipeResult, sources: Sources, folder: Path) -> str | None:
    """Where the files are, relative to the set: in it, or where the pool has them."""
    if built.rendered is not None:
        return built.rendered.root
    if built.files is not None:
        return "images"
    root = getattr(sources.get("pool"), "images_root", None)
    if root is None or built.origins is not None:
        return None
    return Path(os.path.relpath(Path(root).resolve(), folder.resolve())).as_posix()


def _save(testset: TestSet, built: RecipeResult, folder: Path, *, replace: bool) -> TestSet:
    """Write the set with its files in one step; the same set again is no change."""
    if (folder / "card.json").exists() and not replace:
        known = Card.read(folder / "card.json")
        same = same_tables(known, testset.card)
        if same and account(known) == account(testset.card):
            return load(folder)
        hashes = f"{known.content_hash[:12]}, this one is {testset.card.content_hash[:12]}"
        how = "the same images, made from other sources or in another way" if same else hashes
        raise ExistsError(
            f"{folder} holds another test set ({how})", fix="use another --name, or --replace"
        )
    with atomic_folder(folder, replace=replace or folder.exists()) as temporary:
        write(testset, temporary)
        rows = testset.images.select(["image_id", "path"]).to_pylist() if built.files else []
        for row in rows:
            target = temporary / "images" / row["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            # A copy, not a link: nobody who edits the set may change the stored result.
            shutil.copyfile((built.files or {})[row["image_id"]], target)
        for path, data in built.documents.items():
            target = temporary / _safe(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        if built.rendered is not None:
            _move(built.rendered, temporary)
    return load(folder)


def _move(rendered: Rendered, folder: Path) -> None:
    """Move images that were rendered into the set: last, as work that is moved is done again."""
    for path in sorted(rendered.folder.iterdir()):
        target = folder / rendered.root / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise HeldoutError(f"a recipe rendered {path.name!r}, which is taken in a test set")
        shutil.move(path, target)
    if rendered.work is not None:
        remove_folder(rendered.work)
