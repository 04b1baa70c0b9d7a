"""The published tables, reproduced through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.data.testset import load
from tests.cli.conftest import Run
from tests.curate.compose import compose_examples as examples
from tests.measure.evaluation.eval_case import model_file
from tests.models.predictions.running_case import make_set

SETS = ("imagenet-validation-original", "imagenetv2-a-44", "imagenetv2-b-33", "imagenetv2-c-12")
SISCORE_SETS = tuple(f"siscore-{kind}-samples" for kind in ("size", "rotation", "location"))
EXACT = {  # model: hits on the four sets (top-1), of 50,000 and three times 10,000
    "resnet152": (39156, 7535, 6702, 8028),
    "fv_16k": (14165, 2336, 1924, 2744),
}


@pytest.mark.shared
def test_imagenetv2_is_exact_to_the_count(run: Run, shared_data: Path) -> None:
    ran = run("run", "imagenetv2", "--set", f"data={shared_data / 'imagenetv2'}", "--json")
    assert ran.code == 0
    records = ran.json
    scores = {
        (r["model"], r["testset"], r["metric"]): r
        for r in records
        if r["record"] == "score" and r["statistic"] == "value"
    }
    models = {r["model"] for r in records if r["record"] == "score"}
    assert len(models) == 22
    assert not any(name.endswith("_model") for name in models)
    for model in models:
        for name in SETS:
            for metric in ("top1", "top5"):
                record = scores[model, name, metric]
                assert record["n"] == (50_000 if name == SETS[0] else 10_000)
                assert record["low"] < record["value"] < record["high"]
                assert record["testset_hash"] and record["predictions_hash"]
    for name in SETS:
        hits = _independent_hits(shared_data / "imagenetv2", name)
        for model, (top1, top5) in hits.items():
            n = scores[model, name, "top1"]["n"]
            assert round(scores[model, name, "top1"]["value"] * n) == top1
            assert round(scores[model, name, "top5"]["value"] * n) == top5
    for place, name in enumerate(SETS):
        assert scores["resnet152", name, "top1"]["value"] == pytest.approx(
            EXACT["resnet152"][place] / (50_000 if place == 0 else 10_000), abs=1e-12
        )
        assert scores["fv_16k", name, "top1"]["value"] == pytest.approx(
            EXACT["fv_16k"][place] / (50_000 if place == 0 else 10_000), abs=1e-12
        )
    assert "fv_16k.npy stores its columns worst first" in ran.err
    assert "fv_64k_model on imagenetv2-a-44 is fv_64k under another name" in ran.err
    fits = [r for r in records if r["record"] == "fit"]
    assert {(f["testset"], f["axes"]) for f in fits} == {
        (name, axes) for name in SETS[1:] for axes in ("linear", "probit", "logit")
    }
    for fit in fits:
        if fit["axes"] == "linear":
            x = [scores[m, SETS[0], "top1"]["value"] for m in sorted(models)]
            y = [scores[m, fit["testset"], "top1"]["value"] for m in sorted(models)]
            slope, intercept = np.polyfit(x, y, 1)
            assert fit["slope"] == pytest.approx(slope) and fit["intercept"] == pytest.approx(
                intercept
            )
            assert fit["r2"] == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
        assert fit["slope_low"] < fit["slope"] < fit["slope_high"]
        assert fit["corrected_slope"] == pytest.approx(fit["slope"], rel=1e-3)
    # The paper's line leaves the Fisher vectors out; the folder holds 20 of its 64 models.
    (slope,) = [r for r in records if r["record"] == "published" and r["metric"] == "slope of top1"]
    networks = [m for m in sorted(models) if not m.startswith("fv_")]
    x, y = ([scores[m, name, "top1"]["value"] for m in networks] for name in (SETS[0], SETS[2]))
    assert slope["ours"] == round(np.polyfit(x, y, 1)[0], 3) == 1.093
    assert (slope["published"], slope["model"], slope["equal"]) == (1.11, "20 of 64 models", False)


def _independent_hits(folder: Path, name: str) -> dict[str, tuple[int, int]]:
    """Counts straight from the files: no code of ours but the known facts about them."""
    rows = json.loads((folder / "datasets" / f"{name}.json").read_text())["image_filenames"]
    info = json.loads((folder / "metadata/class_info.json").read_text())
    cid = {row["wnid"]: row["cid"] for row in info}
    labels = np.array([cid[wnid] for _, wnid in rows])
    found = {}
    for path in (folder / "predictions" / name).glob("*.npy"):
        top = np.load(path)
        model = path.stem.removesuffix("_model")
        if model == "fv_16k" and name != SETS[0]:
            top = top[:, ::-1]
        hits = top == labels[:, None]
        found[model] = (int(hits[:, 0].sum()), int(hits.any(axis=1).sum()))
    return found


@pytest.mark.shared
def test_imagenetv2_leaves_models_out(run: Run, shared_data: Path) -> None:
    ran = run(
        "run", "imagenetv2", "--set", f"data={shared_data / 'imagenetv2'}", "--set", "exclude=fv_*",
        "--set", "exclude=*_tf", "--json",
    )  # fmt: skip
    models = {r["model"] for r in ran.json if r["record"] == "score"}
    assert len(models) == 15
    assert not any(m.startswith("fv_") or m.endswith("_tf") for m in models)
    assert {r["models"] for r in ran.json if r["record"] == "fit"} == {15}


@pytest.mark.shared
def test_mistakes_table(run: Run, shared_data: Path) -> None:
    order = shared_data / "imagenetv2/datasets/imagenet-validation-original.json"
    ran = run(
        "run", "mistakes", "--set", f"data={shared_data / 'mistakes'}",
        "--set", f"predictions={shared_data / 'imagenetv2/predictions/imagenet-validation-original'}",
        "--set", f"order={order}", "--json",
    )  # fmt: skip
    assert ran.code == 0
    values = {
        (r["model"], r["metric"]): r
        for r in ran.json
        if r["record"] == "score" and r["statistic"] == "value"
    }
    counts = {(r["model"], r["name"]): r["value"] for r in ran.json if r["record"] == "count"}
    wanted = {
        "top1": 78.312, "real": 84.815, "mla": 87.560, "mla_micro": 87.743,
        "mla_correct_only": 87.423, "mla_upper": 87.831,
    }  # fmt: skip
    for metric, percent in wanted.items():
        assert f"{100 * values['resnet152', metric]['value']:.3f}" == f"{percent:.3f}", metric
    assert counts["resnet152", "n_unreviewed"] == 48
    assert f"{100 * values['alexnet', 'mla']['value']:.3f}" == "64.280"
    assert counts["fv_64k", "n_unreviewed"] == 7685
    assert values["resnet152", "real"]["n"] == 46_837
    assert values["resnet152", "mla"]["n"] == 18_692


def test_any_folder_of_the_layout(run: Run, published: Path) -> None:
    ran = run("run", "imagenetv2", "--set", f"data={published}", "--json")
    assert ran.code == 0
    scores = [r for r in ran.json if r["record"] == "score" and r["metric"] == "top1"]
    assert {(r["model"], r["testset"]) for r in scores} == {
        (model, name) for model in "abcd" for name in ("imagenet-validation-original", "new-set-1")
    }
    assert [r["axes"] for r in ran.json if r["record"] == "fit"] == ["linear", "probit", "logit"]
    again = run("run", "imagenetv2", "--set", f"data={published}", "--json")
    assert again.out == ran.out


def test_reversed_columns_and_aliases_in_any_folder(run: Run, published: Path) -> None:
    folder = published / "predictions/new-set-1"
    clean = run("run", "imagenetv2", "--set", f"data={published}", "--json", "-w", "clean").json
    np.save(folder / "a.npy", np.load(folder / "a.npy")[:, ::-1])
    (folder / "b.npy").rename(folder / "b_model.npy")
    ran = run("run", "imagenetv2", "--set", f"data={published}", "--json", "-w", "dirty")
    assert "a.npy stores its columns worst first" in ran.err
    assert "b_model on new-set-1 is b under another name" in ran.err

    def values(records: list[dict[str, object]]) -> dict[tuple[object, ...], object]:
        return {
            (r["model"], r["testset"], r["metric"]): r["value"]
            for r in records
            if r["record"] == "score"
        }

    assert values(ran.json) == values(clean)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("files", "columns", "expected"),
    [
        (
            ["imagenet-testbed/robustness_top1s.csv"],
            ("val", "imagenetv2-matched-frequency-format-val"),
            (0.934, -0.496, 0.9994),
        ),
        (
            ["timm/results-imagenet.csv", "timm/results-imagenetv2-matched-frequency.csv"],
            ("top1", "top1"),
            (0.916, -0.486, 0.993),
        ),
    ],
)
def test_published_populations(
    run: Run,
    shared_data: Path,
    files: list[str],
    columns: tuple[str, str],
    expected: tuple[float, ...],
) -> None:
    populations = [
        part for file in files for part in ("--population", shared_data / "reference" / file)
    ]
    ran = run("fit", *populations, "--x", columns[0], "--y", columns[1], "--json")
    (fit,) = [record for record in ran.json if record["axes"] == "logit"]
    digits = [len(str(value).partition(".")[2]) for value in expected]
    found = tuple(
        round(fit[k], d) for k, d in zip(("slope", "intercept", "r2"), digits, strict=True)
    )
    assert found == expected


def test_siscore_from_any_cutouts(run: Run, tmp_path: Path) -> None:
    """The three presets in their quick form; with one object intervals are refused, with the reason."""
    data = tmp_path / "data"
    examples.save(examples.cutout(80, 60, 1), data / "foreground_samples/lemon/one.png")
    background = Image.fromarray(examples.noise(96, 96, 3, 2))
    examples.save(background, data / "background_samples/wall.png")
    ran = run("run", "siscore", "--set", f"data={data}", "--quick", "--json", "-w", tmp_path / "w")
    assert ran.code == 0
    sizes = {name: load(tmp_path / "w/testsets" / name) for name in SISCORE_SETS}
    assert [s.card.factors for s in sizes.values()] == [("size",), ("size", "rotation"), ("x&y",)]
    assert len(sizes[SISCORE_SETS[2]]) == 121
    for made in sizes.values():
        assert made.folder is not None and (made.folder / "metadata.csv").is_file()
        assert made.card.recipe["parameters"]["renderer"] == "exact"
    found = {(r["testset"], r["columns"]) for r in ran.json if r["record"] == "summary"}
    assert found == {
        (SISCORE_SETS[0], "size"), (SISCORE_SETS[1], "size"), (SISCORE_SETS[1], "rotation"),
        (SISCORE_SETS[2], "x&y"),
    }  # fmt: skip
    assert ran.err.count("too few for a cluster bootstrap, which needs 8") == 3
    page = (tmp_path / "w/runs/reproduce-siscore/report.html").read_text(encoding="utf-8")
    assert all(name in page for name in SISCORE_SETS)
    again = run(
        "run", "siscore", "--set", f"data={data}", "--quick", "--json", "-w", tmp_path / "w"
    )
    assert again.out == ran.out


def test_a_missed_gate_is_the_exit_code_of_a_reproduction(run: Run, tmp_path: Path) -> None:
    make_set(tmp_path, images=20)
    model = model_file(tmp_path)
    file = tmp_path / "strict.toml"
    file.write_text(
        'schema_version = 1\nname = "strict"\n[inputs.data]\n[[step]]\nverb = "eval"\n'
        f'model = ["{model.name}:c"]\ntestset = ["colours-1"]\nfail_under = ["top1=1"]\n'
    )
    ran = run("run", file, "--set", f"data={tmp_path}")
    assert ran.code == 4 and "gate not met" in ran.err


def test_only_siscore_has_a_quick_form(run: Run, published: Path) -> None:
    ran = run("run", "imagenetv2", "--set", f"data={published}", "--quick")
    assert ran.code == 2 and "no quick form" in ran.err


@pytest.mark.shared
def test_the_papers_table_to_the_last_digit(run: Run, shared_data: Path) -> None:
    ran = run("run", "imagenetv2", "--set", f"data={shared_data / 'imagenetv2'}", "--json")
    rows = [row for row in ran.json if row["record"] == "published"]
    assert ran.code == 0 and len(rows) == 17
    # The paper's line is of 64 convolutional networks, of which 20 have published predictions.
    assert [row["metric"] for row in rows if not row["equal"]] == ["slope of top1"]
