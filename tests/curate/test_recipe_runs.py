"""What run_recipe does for every recipe: card, licences, origins, files, and never half a set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recipe_examples as examples

from heldout.core.errors import ExistsError, HeldoutError, UserError
from heldout.core.files import is_temporary, sweep
from heldout.core.workspace import Workspace
from heldout.curate.build import combine_licences, run_recipe
from heldout.curate.recipe import RecipeInput, RecipeResult, Source
from heldout.data.testset import TestSet, load
from heldout.data.testset.catalogue import lineage
from heldout.data.testset.verify import verify
from heldout.testing.sample_recipe import SampleParameters, recipe


def _run(
    made: Any = recipe, sources: Any = None, *, folder: Path | None = None, **more: Any
) -> TestSet:
    return run_recipe(
        made,
        examples.make_sources() if sources is None else sources,
        folder=folder or Path("testsets/drawn"),
        runs=Path("runs"),
        **more,
    )


def test_the_card_says_how_the_set_was_made() -> None:
    pool = examples.make_sources()["pool"]
    testset = _run(parameters=SampleParameters(per_class=4), seed=3)
    card = testset.card
    assert card.name == "drawn"
    assert card.recipe == {
        "name": "sample",
        "version": "1",
        "parameters": {"per_class": 4, "truth": None, "render": False, "side": 8},
        "seed": 3,
    }
    assert card.parents == (
        {"name": "letters-pool", "content_hash": pool.content_hash, "relation": "pool"},
    )
    assert list(card.counts.items()) == [
        ("pool", 36),
        ("labelled", 36),
        ("drawn", 12),
        ("images", 12),
        ("classes", 3),
    ]
    assert card.citation == "Somebody: Letters"
    assert card.columns["light"].unit == "lux"  # the pool's types are kept
    assert card.columns["context"].multi
    assert sum(card.licences.values()) == 12
    assert verify(Path("testsets/drawn")).findings == ()


class _Swept(dict[str, bytes]):
    """Documents at whose writing another process begins to write in the same folder."""

    def items(self) -> Any:
        sweep(Path("testsets"))
        return super().items()


class _WithDocuments(examples.Changed):
    def change(self, built: RecipeResult, parameters: Any, context: Any) -> RecipeResult:
        return replace(built, documents=_Swept({"notes.txt": b"drawn"}))


def test_another_writer_does_not_sweep_a_set_that_is_being_written() -> None:
    testset = _run(_WithDocuments())
    assert len(testset) == len(load(Path("testsets/drawn")))
    assert Path("testsets/drawn/notes.txt").read_bytes() == b"drawn"


def test_rows_lie_in_the_order_of_ids() -> None:
    testset = _run(sources={"pool": examples.make_sources()["pool"].reordered(5)})
    for table in (testset.images, testset.truth(), testset.memberships):
        ids = table["image_id"].to_pylist()
        assert ids == sorted(ids)


def test_a_test_set_serves_as_a_pool_and_is_found_as_the_parent() -> None:
    first = _run(parameters=SampleParameters(per_class=6), folder=Path("testsets/first"))
    second = _run(sources=first, folder=Path("testsets/second"))
    assert second.card.parents[0]["content_hash"] == first.card.content_hash
    chain = lineage(Workspace(Path()), "second")
    assert [(a.name, a.state) for a in chain.ancestors] == [
        ("first", "present"),
        ("letters-pool", "absent"),
    ]
    assert set(second.image_ids.to_pylist()) <= set(first.image_ids.to_pylist())


def test_rendered_images_are_in_the_set_with_their_hashes() -> None:
    testset = _run(parameters=SampleParameters(render=True, side=5))
    assert testset.card.images_root == "images"
    folder = testset.images_folder()
    rows = testset.images.to_pylist()
    assert {row["path"] for row in rows} == {
        p.relative_to(folder).as_posix() for p in folder.rglob("*.png")
    }
    assert all((row["width"], row["height"]) == (5, 5) for row in rows)
    assert verify(Path("testsets/drawn")).findings == ()
    origins = {
        row["image_id"]: row["value"]
        for row in testset.memberships.to_pylist()
        if row["column"] == "origin"
    }
    assert origins == {image: f"pool:{image.removesuffix('@5')}" for image in origins}
    assert set(origins) == set(testset.image_ids.to_pylist())


def test_licences_of_several_origins_are_joined() -> None:
    testset = _run(examples.mixes, examples.two_sources(), parameters=SampleParameters(per_class=4))
    rows = {row["image_id"]: row for row in testset.images.to_pylist()}
    assert rows["image000+image001"]["licence"] == "CC-BY-4.0 AND CC0-1.0"
    assert rows["image000+image002"]["licence"] == "CC0-1.0 AND unknown"
    assert rows["image000+image001"]["attribution"] == "person 0; person 1"
    assert rows["image000+image000"]["source"] == "somewhere"
    assert testset.card.counts["backgrounds"] == 6


@pytest.mark.parametrize(
    ("licences", "joined"),
    [
        ([None, None], None),
        (["MIT"], "MIT"),
        (["MIT", None], "MIT AND unknown"),
        (["b", "a", "b"], "a AND b"),
    ],
)
def test_combine_licences(licences: list[str | None], joined: str | None) -> None:
    assert combine_licences(licences) == joined


def test_images_of_the_pool_stay_where_they_are() -> None:
    pool = examples.make_sources()["pool"]
    root = Path("photos")
    root.mkdir()
    paths = [f"{i}.jpg" for i in pool.images["image_id"].to_pylist()]
    import pyarrow as pa

    at = pool.images.column_names.index("path")
    images = pool.images.set_column(at, "path", pa.array(paths))
    testset = _run(
        sources={
            "pool": replace(
                pool, images=images, card=pool.card.updated(images_root=str(root.resolve()))
            )
        }
    )
    assert testset.card.images_root == "../../photos"
    assert testset.images_folder().resolve() == root.resolve()


def test_the_same_request_again_changes_nothing_and_another_is_refused() -> None:
    first = _run()
    stamp = Path("testsets/drawn/card.json").stat().st_mtime_ns
    again = _run()
    assert again.card == first.card
    assert Path("testsets/drawn/card.json").stat().st_mtime_ns == stamp
    with pytest.raises(ExistsError, match="another test set"):
        _run(seed=1)
    replaced = _run(seed=1, replace=True)
    assert replaced.card.recipe["seed"] == 1
    assert load(Path("testsets/drawn")).card == replaced.card


def test_a_folder_that_is_no_test_set_is_left_alone() -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("keep")
    for replace_it in (False, True):
        with pytest.raises(ExistsError):
            _run(folder=Path("mine"), replace=replace_it)
    assert Path("mine/notes.txt").read_text() == "keep"


def test_a_failing_recipe_leaves_nothing() -> None:
    with pytest.raises(UserError, match="one is bad"):
        _run(examples.failing_work)
    assert not Path("testsets").exists() or not list(Path("testsets").iterdir())
    with pytest.raises(HeldoutError, match="recipe chooser: image 'new-"):
        _run(examples.renames)
    assert not any(map(is_temporary, Path().rglob("*")))


def test_requests_that_do_not_fit_the_recipe() -> None:
    with pytest.raises(UserError, match="give pool"):
        _run(sources={})
    with pytest.raises(UserError, match="give pool, backgrounds"):
        _run(examples.mixes)
    with pytest.raises(UserError, match="give SampleParameters"):
        _run(parameters={"per_class": 1})


def test_an_image_id_that_leads_out_of_the_folder_is_refused() -> None:
    class Escapes(examples.Chooser):
        guarantees = examples.Guarantees()

        def build(self, sources: Any, parameters: Any, *, seed: int, context: Any) -> RecipeResult:
            built = recipe.build(
                sources, SampleParameters(render=True, per_class=1), seed=seed, context=context
            )
            files = dict(built.files or {})
            image = next(iter(files))
            return replace(
                built,
                images=examples.image_table({"image_id": ["../out"]}),
                truths={
                    "original": examples.TruthTable(table=examples.truth_table(["../out"], ["a"]))
                },
                files={"../out": files[image]},
                origins={"../out": (built.origins or {})[image]},
            )

    with pytest.raises(UserError, match="is not a file name"):
        _run(Escapes())


def test_given_is_a_source() -> None:
    given = RecipeInput("judgements", "ab" * 32, object(), rows=4)
    assert isinstance(given, Source) and len(given) == 4
    assert isinstance(examples.make_sources()["pool"], Source)


def test_what_is_drawn_keeps_the_namespace_of_its_pool() -> None:
    pool = examples.make_sources()["pool"]
    drawn = {
        namespace: _run(
            sources={"pool": replace(pool, card=pool.card.updated(images_namespace=namespace))},
            folder=Path(f"testsets/drawn-{namespace}"),
            parameters=SampleParameters(per_class=4),
        ).card
        for namespace in ("mine", "theirs", None)
    }
    assert {card.images_namespace for card in drawn.values()} == {"mine", "theirs", None}
    assert len({card.images_hash for card in drawn.values()}) == 3


def test_a_folder_that_is_taken_is_refused_before_any_work() -> None:
    class Counted(type(recipe)):  # type: ignore[misc]
        built = 0

        def build(self, *given: Any, **more: Any) -> RecipeResult:
            Counted.built += 1
            return super().build(*given, **more)

    counted = Counted()
    _run(counted, parameters=SampleParameters(per_class=4))
    _run(counted, parameters=SampleParameters(per_class=4))
    with pytest.raises(ExistsError, match="holds another test set"):
        _run(counted, parameters=SampleParameters(per_class=3))
    with pytest.raises(ExistsError, match="holds another test set"):
        _run(counted, parameters=SampleParameters(per_class=4), seed=1)
    Path("full").mkdir()
    Path("full/notes.txt").write_text("x")
    for replacing in (False, True):
        with pytest.raises(ExistsError, match="is not a test set"):
            _run(counted, folder=Path("full"), replace=replacing)
    assert Counted.built == 2
