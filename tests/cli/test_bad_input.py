"""What a user gets wrong: one line that names the file and the fix, exit 2, nothing half-written."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Ran, Run, write


def refused(ran: Ran, *words: str) -> None:
    assert ran.code == 2
    line = [text for text in ran.err.splitlines() if text.startswith("error: ")]
    assert len(line) == 1 and ran.err.rstrip().endswith(line[0])
    assert "Traceback" not in ran.err
    assert ran.out == ""
    for word in words:
        assert word in line[0], (word, line[0])


def stored(root: Path) -> list[str]:
    return (
        sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
        if root.exists()
        else []
    )


@pytest.fixture
def imported(run: Run, published: Path) -> Path:
    for name in ("imagenet-validation-original", "new-set-1"):
        classes = published / "metadata/class_info.json"
        ran = run("import", "testset", published / f"datasets/{name}.json", "--classes", classes)
        assert ran.code == 0
    return published


def test_missing_file(run: Run) -> None:
    refused(run("import", "testset", "nowhere.json"), "nowhere.json")
    refused(run("run", "imagenetv2", "--set", "data=nowhere", "--json"), "nowhere")
    refused(run("fit", "--population", "nowhere.csv", "--x", "a", "--y", "b"), "nowhere.csv")
    refused(run("report", "nowhere.json"), "nowhere.json")
    refused(run("run", "nowhere.toml"), "nowhere.toml")


def test_empty_folder(run: Run, tmp_path: Path, imported: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(run("import", "testset", tmp_path / "empty"), "empty")
    refused(run("import", "predictions", tmp_path / "empty", "-t", "new-set-1"), "empty")
    refused(run("run", "imagenetv2", "--set", f"data={tmp_path / 'empty'}", "--json"), "empty")


def test_truncated_array_leaves_the_store_as_it_was(run: Run, imported: Path) -> None:
    folder = imported / "predictions/new-set-1"
    data = (folder / "c.npy").read_bytes()
    (folder / "c.npy").write_bytes(data[: len(data) // 2])
    refused(run("import", "predictions", folder), "c.npy", "again")
    assert stored(Path("predictions")) == []


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_a_pickle_with_code_in_it_is_never_run(run: Run, imported: Path, ending: str) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (Path("owned"),))

    path = imported / f"evil{ending}"
    path.write_bytes(pickle.dumps(Evil()))
    refused(run("import", "predictions", path, "-t", "new-set-1"), path.name)
    np.save(imported / "objects.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    refused(
        run("import", "predictions", imported / "objects.npy", "-t", "new-set-1"), "objects.npy"
    )
    assert not Path("owned").exists()


def test_unknown_class_in_a_dataset_file(run: Run, published: Path) -> None:
    path = published / "datasets/new-set-1.json"
    value = json.loads(path.read_text())
    value["image_filenames"][3][1] = "n99999999"
    path.write_text(json.dumps(value))
    ran = run("import", "testset", path, "--classes", published / "metadata/class_info.json")
    refused(ran, "new-set-1", "n99999999", "--classes")
    refused(
        run("import", "testset", published / "datasets/imagenet-validation-original.json"),
        "imagenet-1k",
    )
    assert stored(Path("testsets")) == []


def test_predictions_of_another_set(run: Run, imported: Path, tmp_path: Path) -> None:
    short = np.load(imported / "predictions/new-set-1/a.npy")[:-1]
    np.save(tmp_path / "short.npy", short)
    refused(
        run("import", "predictions", tmp_path / "short.npy", "-t", "new-set-1"),
        "short.npy",
        "199",
        "200",
    )
    order = imported / "datasets/imagenet-validation-original.json"
    path = imported / "predictions/imagenet-validation-original/a.npy"
    refused(run("import", "predictions", path, "-t", "new-set-1", "--order", order), "another set")


def test_rows_in_another_order(run: Run, imported: Path, tmp_path: Path) -> None:
    rows = json.loads((imported / "datasets/new-set-1.json").read_text())["image_filenames"]
    by_name = sorted(range(len(rows)), key=lambda i: rows[i][0])
    np.save(tmp_path / "a.npy", np.load(imported / "predictions/new-set-1/a.npy")[by_name, :1])
    refused(run("import", "predictions", tmp_path / "a.npy", "-t", "new-set-1"), "--order name")
    assert (
        run("import", "predictions", tmp_path / "a.npy", "-t", "new-set-1", "--order", "name").code
        == 0
    )


def test_nan_logits(run: Run, imported: Path, tmp_path: Path) -> None:
    logits = np.zeros((200, 5), np.float32)
    logits[17, 2] = np.nan
    np.save(tmp_path / "m.npy", logits)
    refused(run("import", "predictions", tmp_path / "m.npy", "-t", "new-set-1"), "m.npy", "row 17")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t + 1, ["outside 0..4", "subtract 1"]),
        (lambda t: np.where(t == 4, 17, t), ["outside 0..4", "17"]),
        (lambda t: np.repeat(t[:, :1], 2, axis=1), ["twice"]),
        (lambda t: t.astype(complex), ["complex"]),
        (lambda t: t[:, :, None], ["shape"]),
    ],
)
def test_bad_top_k(
    run: Run, imported: Path, tmp_path: Path, change: object, words: list[str]
) -> None:
    top = np.load(imported / "predictions/new-set-1/a.npy")
    np.save(tmp_path / "m.npy", change(top))  # type: ignore[operator]
    refused(run("import", "predictions", tmp_path / "m.npy", "-t", "new-set-1"), "m.npy", *words)


def test_class_without_images_under_a_per_class_metric(
    run: Run, published: Path, tmp_path: Path
) -> None:
    value = json.loads((published / "datasets/new-set-1.json").read_text())
    value["image_filenames"] = [row for row in value["image_filenames"] if row[1] != "n10000014"]
    path = write(tmp_path / "few.json", value)
    assert (
        run("import", "testset", path, "--classes", published / "metadata/class_info.json").code
        == 0
    )
    np.save(tmp_path / "m.npy", np.zeros((len(value["image_filenames"]), 1), np.int16))
    assert run("import", "predictions", tmp_path / "m.npy", "-t", "few").code == 0
    refused(
        run("score", "-t", "few", "--metric", "mean_per_class"),
        "few",
        "n10000014",
        "--absent-classes skip",
    )
    ran = run(
        "score", "-t", "few", "--metric", "mean_per_class", "--absent-classes", "skip", "--json"
    )
    assert ran.code == 0 and ran.json[0]["value"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["JSON"]),
        ("{", ["JSON"]),
        ("[]", ["not a JSON object of a dataset"]),
        ('{"image_filenames": []}', ["no images"]),
        ('{"image_filenames": [["a"]]}', ["image_filenames"]),
        ('{"image_filenames": [["a", "n10000000"], ["a", "n10000000"]]}', ["twice"]),
    ],
)
def test_broken_dataset_files(
    run: Run, published: Path, tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "set.json"
    path.write_text(text)
    refused(
        run("import", "testset", path, "--classes", published / "metadata/class_info.json"), *words
    )
    assert stored(Path("testsets")) == []


def test_unknown_names(run: Run, imported: Path) -> None:
    refused(run("score", "-t", "nothing"), "nothing", "new-set-1")
    refused(run("score", "-t", "new-set-1"), "no predictions", "import")
    assert run("import", "predictions", imported / "predictions").code == 0
    refused(run("score", "-t", "new-set-1", "-m", "zzz"), "zzz", "a, b, c, d")
    refused(run("score", "-t", "new-set-1", "--metric", "zzz"), "zzz", "mla")
    refused(run("score", "-t", "new-set-1", "--truth", "zzz"), "zzz", "original")
    refused(run("score", "-t", "new-set-1", "--by", "zzz"), "zzz")
    refused(run("fit", "-t", "new-set-1", "--baseline", "zzz"), "zzz")
    refused(run("fit", "-t", "new-set-1"), "--baseline")
    refused(run("run", "zzz", "--set", "data=."), "imagenetv2")
    refused(run("score", "-t", "new-set-1", "--metric", "nll"), "logits")


def test_usage_errors_exit_2(run: Run) -> None:
    for arguments in (
        ["score"],
        ["zzz"],
        ["fit", "--axes"],
        ["score", "-t", "a", "--level", "much"],
    ):
        assert run(*arguments).code == 2


def test_another_set_of_the_same_name(run: Run, imported: Path) -> None:
    path = imported / "datasets/new-set-1.json"
    value = json.loads(path.read_text())
    value["image_filenames"] = value["image_filenames"][:-5]
    path.write_text(json.dumps(value))
    classes = imported / "metadata/class_info.json"
    refused(run("import", "testset", path, "--classes", classes), "new-set-1", "--replace")
    assert run("import", "testset", path, "--classes", classes, "--replace").code == 0
