from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heldout.core.errors import BadFile, ExistsError, LabelError, NotFound, UserError
from heldout.data.labels import LabelSpace
from heldout.data.testset import (
    Card,
    TestSet,
    add_truth,
    image_table,
    load,
    make_testset,
    membership_table,
    save,
    subset,
    truth_table,
)
from heldout.data.testset.hashing import combine, hash_table, images_hash
from heldout.data.testset.verify import verify

Maker = Callable[..., TestSet]


def test_save_and_load_give_the_same_set(tmp_path: Path, pets: TestSet) -> None:
    saved = save(pets, tmp_path / "pets-a-1")
    back = load(tmp_path / "pets-a-1")
    assert back.card == saved.card == pets.card
    assert back.images.equals(pets.images)
    assert back.memberships.equals(pets.memberships)
    assert {name: table.equals(pets.truths[name]) for name, table in back.truths.items()} == {
        "original": True,
        "multi": True,
    }
    assert back.label_space == pets.label_space
    assert back.folder == tmp_path / "pets-a-1"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pets-a-1"]


def test_a_set_is_one_line(pets: TestSet) -> None:
    shown = repr(pets)
    assert shown.startswith(f"<TestSet {pets.name}: {len(pets)} images; ")
    assert len(shown) < 300 and "\n" not in shown
    assert all(name in shown for name in (*pets.truths, *pets.card.columns))


def test_card_is_filled_in(pets: TestSet) -> None:
    card = pets.card
    assert card.licences == {"CC-BY-4.0": 3, "CC-BY-NC-2.0": 1, "CC0": 2}
    assert {name: kind.kind for name, kind in card.columns.items()} == {
        "domain": "categorical",
        "size": "ordered",
        "level": "ordered",
        "context": "categorical",
    }
    assert card.columns["context"].multi
    assert card.default_truth == "original"
    assert list(card.truths) == ["original", "multi"]
    tables = {"images": pets.images, "memberships": pets.memberships}
    tables |= {f"truth/{name}": table for name, table in pets.truths.items()}
    assert card.tables == {name: hash_table(table) for name, table in tables.items()}
    assert card.content_hash == combine(card.tables)


def test_null_and_empty_licences_are_counted_together(make_pets: Maker) -> None:
    images = image_table(
        {"image_id": ["a", "b", "c", "d"], "licence": [None, "", "unknown", "CC0"]}
    )
    made = make_pets(images=images, truths={}, memberships=None)
    assert made.card.licences == {"CC0": 1, "unknown": 3}


def test_content_hash_does_not_depend_on_row_order(make_pets: Maker, pets: TestSet) -> None:
    order = [5, 3, 1, 0, 2, 4]
    turned = make_pets(
        images=pets.images.take(order),
        truths={name: table.take(order) for name, table in reversed(pets.truths.items())},
        memberships=pets.memberships.take([2, 0, 1]),
    )
    assert turned.card.content_hash == pets.card.content_hash
    assert turned.card.images_hash == pets.card.images_hash


def test_content_hash_sees_every_table(make_pets: Maker, pets: TestSet) -> None:
    ids = pets.image_ids.to_pylist()
    others = [
        make_pets(memberships=None),
        make_pets(truths={"original": pets.truths["original"]}),
        make_pets(truths={**pets.truths, "multi": pets.truths["original"]}),
        make_pets(images=pets.images.drop_columns(["level"])),
        make_pets(truths={"first": pets.truths["original"], "multi": pets.truths["multi"]}),
    ]
    hashes = {other.card.content_hash for other in others} | {pets.card.content_hash}
    assert len(hashes) == 6
    assert {other.card.images_hash for other in others} == {pets.card.images_hash}
    assert len(ids) == len(pets) == 6


def test_truth_by_name(pets: TestSet) -> None:
    assert pets.truth().equals(pets.truths["original"])
    assert pets.truth("multi").equals(pets.truths["multi"])
    with pytest.raises(NotFound, match="no truth 'real': it has original, multi"):
        pets.truth("real")


def test_saving_again_is_no_change_and_other_content_is_refused(
    tmp_path: Path, pets: TestSet, make_pets: Maker
) -> None:
    folder = tmp_path / "pets-a-1"
    save(pets, folder)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    save(pets, folder)
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
    other = make_pets(memberships=None)
    with pytest.raises(ExistsError, match="another test set"):
        save(other, folder)
    assert load(folder).card.content_hash == pets.card.content_hash
    save(other, folder, replace=True)
    assert load(folder).card.content_hash == other.card.content_hash
    assert not (folder / "memberships.parquet").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["pets-a-1"]


def test_saving_a_set_again_keeps_truths_added_since(tmp_path: Path, pets: TestSet) -> None:
    saved = save(pets, tmp_path / "a")
    grown = add_truth(saved, "panel", truth_table(["i1"], ["dog"]), provenance={})
    assert save(pets, tmp_path / "a").card == grown.card


def test_a_folder_that_is_no_test_set_is_never_replaced(tmp_path: Path, pets: TestSet) -> None:
    precious = tmp_path / "home" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("all of it")
    for replace in (False, True):
        with pytest.raises(ExistsError, match="not a test set"):
            save(pets, tmp_path / "home", replace=replace)
    assert precious.read_text() == "all of it"
    (tmp_path / "file").write_text("x")
    with pytest.raises(ExistsError):
        save(pets, tmp_path / "file", replace=True)
    (tmp_path / "empty").mkdir()
    assert save(pets, tmp_path / "empty").name == "pets-a-1"


def test_replacing_keeps_the_images(photos: TestSet) -> None:
    assert photos.folder is not None
    files = {p.name: p.read_bytes() for p in photos.images_folder().rglob("*.*")}
    wider = make_testset(
        photos.card,
        images=photos.images.append_column("extra", pa.array(list(range(8)))),
        truths=photos.truths,
        label_space=photos.label_space,
    )
    back = save(wider, photos.folder, replace=True)
    assert {p.name: p.read_bytes() for p in back.images_folder().rglob("*.*")} == files
    assert "extra" in back.images.column_names


def test_images_stay_where_they_are_when_a_set_is_saved_elsewhere(
    tmp_path: Path, photos: TestSet
) -> None:
    copy = save(photos, tmp_path / "deep" / "er" / "copy")
    assert copy.card.images_root == "../../../sets/photos-1/images"
    assert copy.images_folder().resolve() == photos.images_folder().resolve()
    assert save(photos, photos.folder or tmp_path, replace=True).card.images_root == "images"


def test_an_absolute_images_root_is_written_relative(tmp_path: Path, make_pets: Maker) -> None:
    root = tmp_path / "pictures"
    root.mkdir()
    made = make_pets(card=Card(name="a", label_space="pets", images_root=root.as_posix()))
    assert made.images_folder() == root
    assert save(made, tmp_path / "sets" / "a").card.images_root == "../../pictures"


def test_a_set_without_images_says_so(pets: TestSet) -> None:
    with pytest.raises(NotFound, match="no images on disk"):
        pets.images_folder()


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"truths": {"original": truth_table(["x9"], ["cat"])}}, UserError, "truth original.*'x9'"),
        ({"truths": {"memberships": truth_table(["x9"], ["cat"])}}, UserError, "'x9'"),
        ({"truths": {"a b": truth_table(["i1"], ["cat"])}}, UserError, "'a b'"),
        ({"truths": {"original": truth_table(["i1"], ["cow"])}}, LabelError, "'cow'"),
        (
            {"truths": {"original": truth_table(["i1"], ["cat"], wrong=[["cow"]])}},
            LabelError,
            "'cow'",
        ),
        ({"memberships": membership_table([("x9", "c", "v")])}, UserError, "memberships.*'x9'"),
        ({"memberships": membership_table([("i1", "domain", "v")])}, UserError, "domain"),
        ({"card": Card(name="no/slug", label_space="pets")}, UserError, "no/slug"),
    ],
)
def test_tables_that_do_not_belong_together(
    make_pets: Maker, changes: dict[str, object], kind: type[UserError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        make_pets(**changes)


def test_repeated_ids_are_refused_however_the_table_was_made(make_pets: Maker) -> None:
    images = image_table({"image_id": ["i1"]})
    with pytest.raises(UserError, match="repeated"):
        make_pets(images=pa.concat_tables([images, images]), truths={}, memberships=None)


def test_a_truth_may_cover_some_images_and_give_several_classes(
    tmp_path: Path, make_pets: Maker
) -> None:
    truth = truth_table(["i1", "i1", "i2"], ["cat", "dog", "dog"])
    made = make_pets(truths={"some": truth})
    assert load(save(made, tmp_path / "a").folder or tmp_path).truth("some").equals(truth)


def test_built_in_label_spaces_are_not_copied(tmp_path: Path) -> None:
    space = LabelSpace.load("imagenet-1k")
    made = make_testset(
        Card(name="a", label_space=space.name),
        images=image_table({"image_id": ["i"]}),
        truths={"original": truth_table(["i"], [space.ids[3]])},
        label_space=space,
    )
    save(made, tmp_path / "a")
    assert not (tmp_path / "a" / "label_space.json").exists()
    assert load(tmp_path / "a").label_space == space


class TestAddTruth:
    def test_adds_and_keeps_history(self, tmp_path: Path, pets: TestSet) -> None:
        saved = save(pets, tmp_path / "a")
        table = truth_table(["i1"], ["dog"])
        grown = add_truth(saved, "panel", table, provenance={"by": "three people"})
        assert list(grown.truths) == ["original", "multi", "panel"]
        assert grown.card.truths["panel"] == {"by": "three people"}
        assert grown.card.default_truth == "original"
        assert grown.card.history == (
            {"content_hash": pets.card.content_hash, "then": "added truth panel"},
        )
        assert grown.card.images_hash == pets.card.images_hash
        assert grown.card.content_hash != pets.card.content_hash
        assert load(tmp_path / "a").truth("panel").equals(table)

    def test_is_append_only(self, tmp_path: Path, pets: TestSet) -> None:
        saved = save(pets, tmp_path / "a")
        table = truth_table(["i1"], ["dog"])
        once = add_truth(saved, "panel", table, provenance={})
        twice = add_truth(once, "panel", table, provenance={})
        assert twice.card == once.card
        with pytest.raises(ExistsError, match="another truth 'panel'"):
            add_truth(once, "panel", truth_table(["i1"], ["cat"]), provenance={})
        with pytest.raises(ExistsError):
            add_truth(once, "original", table, provenance={})
        assert load(tmp_path / "a").card == once.card

    def test_a_stale_set_loses_nothing(self, tmp_path: Path, pets: TestSet) -> None:
        stale = save(pets, tmp_path / "a")
        add_truth(stale, "one", truth_table(["i1"], ["dog"]), provenance={})
        grown = add_truth(stale, "two", truth_table(["i2"], ["dog"]), provenance={})
        assert list(grown.truths) == ["original", "multi", "one", "two"]
        assert len(grown.card.history) == 2

    def test_bad_truths_leave_nothing(self, tmp_path: Path, pets: TestSet) -> None:
        saved = save(pets, tmp_path / "a")
        for name, table in (
            ("cow", truth_table(["i1"], ["cow"])),
            ("foreign", truth_table(["x9"], ["cat"])),
            ("../out", truth_table(["i1"], ["cat"])),
        ):
            with pytest.raises(UserError):
                add_truth(saved, name, table, provenance={})
        assert sorted(p.name for p in (tmp_path / "a" / "truth").iterdir()) == [
            "multi.parquet",
            "original.parquet",
        ]
        assert load(tmp_path / "a").card == saved.card

    def test_needs_a_saved_set(self, pets: TestSet) -> None:
        with pytest.raises(UserError, match="not saved"):
            add_truth(pets, "x", truth_table(["i1"], ["cat"]), provenance={})


class TestBadFiles:
    @pytest.fixture
    def folder(self, tmp_path: Path, pets: TestSet) -> Path:
        save(pets, tmp_path / "a")
        return tmp_path / "a"

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="no test set or pool at"):
            load(tmp_path / "none")

    @pytest.mark.parametrize("name", ["images.parquet", "truth/multi.parquet"])
    def test_missing_table(self, folder: Path, name: str) -> None:
        (folder / name).unlink()
        with pytest.raises(NotFound, match=Path(name).name):
            load(folder)

    def test_truncated_table(self, folder: Path) -> None:
        data = (folder / "images.parquet").read_bytes()
        (folder / "images.parquet").write_bytes(data[: len(data) // 2])
        with pytest.raises(BadFile, match=r"images\.parquet.*Parquet"):
            load(folder)

    def test_missing_column_and_wrong_type(self, folder: Path, pets: TestSet) -> None:
        pq.write_table(pets.images.drop_columns(["sha256"]), folder / "images.parquet")
        with pytest.raises(BadFile, match="lacks the column sha256"):
            load(folder)
        wrong = pets.truths["multi"].set_column(2, "correct", pa.array([1] * 6))
        pq.write_table(pets.images, folder / "images.parquet")
        pq.write_table(wrong, folder / "truth" / "multi.parquet")
        with pytest.raises(BadFile, match="column correct"):
            load(folder)

    def test_other_writers_string_types_are_read(self, folder: Path, pets: TestSet) -> None:
        position = pets.images.column_names.index("source")
        table = pets.images.set_column(
            0, "image_id", pets.images["image_id"].cast(pa.large_string())
        )
        table = table.set_column(position, "source", table["source"].dictionary_encode())
        pq.write_table(table, folder / "images.parquet")
        assert load(folder).images.schema.equals(pets.images.schema)

    def test_broken_label_space_names_the_file(self, folder: Path) -> None:
        (folder / "label_space.json").write_text('{"schema_version": 1, "name": "pets"}')
        with pytest.raises(BadFile, match=r"label_space\.json"):
            load(folder)


SAVE_FOR_EVER = """
import sys
from pathlib import Path
from heldout.data.testset import load, save
folder = Path(sys.argv[1])
sets = [load(Path(path)) for path in sys.argv[2:]]
print("ready", flush=True)
while True:
    for made in sets:
        save(made, folder, replace=True)
"""


def assert_whole(testset: TestSet) -> None:
    tables = {"images": testset.images}
    tables |= {f"truth/{name}": table for name, table in testset.truths.items()}
    if len(testset.memberships):
        tables["memberships"] = testset.memberships
    assert {name: hash_table(table) for name, table in tables.items()} == testset.card.tables


def put_back(folder: Path) -> None:
    """What ``load`` tells a user to do where a kill fell between the two renames."""
    with pytest.raises(NotFound) as caught:
        load(folder)
    (left,) = folder.parent.glob(f".tmp-*-old-{folder.name}")
    assert f"rename {left.name} to {folder.name}" in caught.value.line
    left.rename(folder)


def test_a_kill_while_replacing_leaves_the_old_or_the_new_set(
    tmp_path: Path, pets: TestSet, make_pets: Maker
) -> None:
    """Real processes, killed at random moments while they replace one set by another."""
    other = make_pets(memberships=None)
    for made, name in ((pets, "one"), (other, "two")):
        save(made, tmp_path / "from" / name)
    folder = tmp_path / "sets" / "a"
    save(pets, folder)
    hashes = {pets.card.content_hash, other.card.content_hash}
    rng = random.Random(5)
    command = [sys.executable, "-c", SAVE_FOR_EVER, str(folder)]
    command += [str(tmp_path / "from" / name) for name in ("one", "two")]
    for _ in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0.01, 0.1))
            os.kill(process.pid, signal.SIGKILL)
        if sys.platform != "linux" and not folder.exists():
            put_back(folder)  # only Linux swaps two folders in one step
        back = load(folder)
        assert back.card.content_hash in hashes
        assert_whole(back)


def test_a_kill_between_the_renames_loses_nothing(
    tmp_path: Path, pets: TestSet, make_pets: Maker
) -> None:
    folder = tmp_path / "sets" / "a"
    save(pets, folder)
    save(make_pets(memberships=None), tmp_path / "from")
    script = """
import os, signal, sys
from pathlib import Path
from heldout.core import files
from heldout.data.testset import load, save
made, target = load(Path(sys.argv[1])), Path(sys.argv[2])
files._exchange = lambda a, b: False  # a system that cannot swap two folders in one step
rename = Path.rename
def killed_after(self, to):
    done = rename(self, to)
    os.kill(os.getpid(), signal.SIGKILL)
Path.rename = killed_after
save(made, target, replace=True)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "from"), str(folder)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    if not folder.exists():
        put_back(folder)
    assert_whole(load(folder))


def test_a_kill_while_saving_anew_leaves_nothing_or_all(tmp_path: Path, pets: TestSet) -> None:
    save(pets, tmp_path / "from")
    script = """
import os, signal, sys
from pathlib import Path
import pyarrow.parquet as pq
from heldout.data.testset import load, save
made = load(Path(sys.argv[1]))
write, left = pq.write_table, int(sys.argv[3])
def counted(*arguments, **options):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(*arguments, **options)
pq.write_table = counted
save(made, Path(sys.argv[2]))
"""
    outcomes = []
    for steps in range(6):
        target = tmp_path / f"sets-{steps}" / "a"
        command = [sys.executable, "-c", script, str(tmp_path / "from"), str(target), str(steps)]
        done = subprocess.run(command, check=False)
        outcomes.append((done.returncode, target.exists()))
        shutil.rmtree(target.parent, ignore_errors=True)
    killed = (-signal.SIGKILL, False)
    assert outcomes == [killed] * 4 + [(0, True)] * 2


def test_the_same_tables_with_classes_in_another_order_are_another_set(
    tmp_path: Path, pets: TestSet
) -> None:
    save(pets, tmp_path / "a")
    space = LabelSpace.from_ids(pets.label_space.name, pets.label_space.ids[::-1])
    turned = make_testset(
        pets.card,
        images=pets.images,
        truths=pets.truths,
        label_space=space,
        memberships=pets.memberships,
    )
    assert turned.card.content_hash == pets.card.content_hash
    with pytest.raises(ExistsError, match="classes in another order"):
        save(turned, tmp_path / "a")
    assert save(turned, tmp_path / "a", replace=True).label_space.ids == space.ids


def test_ids_without_file_hashes_belong_to_a_namespace(pets: TestSet, tmp_path: Path) -> None:
    bare = pets.images.set_column(
        pets.images.column_names.index("sha256"),
        "sha256",
        pa.nulls(len(pets), pa.string()),
    )

    def made(name: str, namespace: str | None) -> TestSet:
        return make_testset(
            pets.card.updated(name=name, images_namespace=namespace),
            images=bare,
            truths=pets.truths,
            label_space=pets.label_space,
            memberships=pets.memberships,
        )

    mine, theirs, published = made("mine", "mine"), made("theirs", "theirs"), made("mine", None)
    assert len({t.card.images_hash for t in (mine, theirs, published)}) == 3
    assert len({t.card.content_hash for t in (mine, theirs, published)}) == 1
    assert published.card.images_hash == images_hash(bare)
    assert "images_namespace" not in published.card.to_dict()
    saved = save(mine, tmp_path / "mine")
    assert load(saved.folder).card.images_namespace == "mine"  # type: ignore[arg-type]
    assert verify(tmp_path / "mine").ok
    # What is made of it has the same ids in the same namespace, under whatever name.
    ids = mine.image_ids.to_pylist()[:2]
    some = [subset(saved, ids, name=name, recipe={"name": "x"}) for name in ("some", "few")]
    assert {t.card.images_namespace for t in some} == {"mine"} == {saved.card.images_namespace}
    assert some[0].card.images_hash == some[1].card.images_hash
    other = subset(theirs, ids, name="some", recipe={"name": "x"})
    assert other.card.images_hash != some[0].card.images_hash


def test_a_subset_is_cited_as_its_parent_unless_it_says_otherwise(pets: TestSet) -> None:
    few = {"image_ids": ["i1"], "name": "few", "recipe": {"name": "x"}}
    assert subset(pets, **few).card.citation == pets.card.citation != ""  # type: ignore[arg-type]
    assert subset(pets, **few, citation="Lee 2001").card.citation == "Lee 2001"  # type: ignore[arg-type]


def at_once(*calls: Callable[[], object]) -> list[object]:
    """The results of calls that begin at one moment, in threads."""
    barrier = threading.Barrier(len(calls))

    def wait_and_call(call: Callable[[], object]) -> object:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(wait_and_call, calls))


def test_truths_that_are_added_at_once_are_all_there(tmp_path: Path, pets: TestSet) -> None:
    saved = save(pets, tmp_path / pets.name)
    table, names = truth_table(["i1"], ["dog"]), [f"panel-{n}" for n in range(8)]
    at_once(*(partial(add_truth, saved, name, table, provenance={}) for name in names))
    back = load(tmp_path / pets.name)
    assert set(back.truths) == {"original", "multi", *names}
    assert not verify(tmp_path / pets.name).findings
    assert len(back.card.history) == len(names)


def test_who_saves_the_same_set_at_once_finds_it(tmp_path: Path, pets: TestSet) -> None:
    made = at_once(*(partial(save, pets, tmp_path / "a") for _ in range(8)))
    assert all(isinstance(each, TestSet) and each.card == pets.card for each in made)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_set_that_is_replaced_while_it_is_read_is_not_mixed(
    tmp_path: Path, pets: TestSet, make_pets: Maker
) -> None:
    sets = (pets, make_pets(memberships=None))
    save(pets, tmp_path / "a")

    def replace() -> None:
        for n in range(40):
            save(sets[n % 2], tmp_path / "a", replace=True)

    def read() -> None:
        for _ in range(80):
            assert_whole(load(tmp_path / "a"))

    at_once(replace, read)
