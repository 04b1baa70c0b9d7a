"""``heldout mistakes propose``: a label space of pets, bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from heldout.core.workspace import Workspace
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import Card, image_table, make_testset, save, truth_table
from heldout.models.predictions import Predictions
from heldout.models.predictions.store import PredictionStore
from tests.cli.conftest import Run
from tests.measure.mistakes.evidence_case import IDS, PARENTS, PETS

N = 160


def of(ran: Any, record: str) -> list[dict[str, Any]]:
    return [row for row in ran.json if row["record"] == record]


@pytest.fixture
def verdicts(tmp_path: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """A set of 160 images of pets and three models in a workspace; what people would say of mistakes."""
    rng = np.random.default_rng(5)
    images = [f"img-{i:03d}" for i in range(N)]
    labels = [IDS[i % 5] for i in range(N)]
    testset = make_testset(
        Card(name="pets-1", label_space="pets", truths={"original": {"kind": "single"}}),
        images=image_table({"image_id": images, "frequency": [i / N for i in range(N)]}),
        truths={"original": truth_table(images, labels)},
        label_space=PETS,
    )
    place = Workspace.find()
    save(testset, place.testsets / "pets-1")
    found = {}
    for model, skill in {"good": 0.6, "fair": 0.4, "poor": 0.2}.items():
        topk = np.stack([rng.permutation(len(IDS)) for _ in images])[:, :4].astype(np.int32)
        for i, label in enumerate(labels):
            if rng.random() < skill:
                topk[i, 0] = PETS.index(label)
        predictions = Predictions(
            model=model,
            image_ids=pa.array(images),
            topk=topk,
            label_space=PETS,
            identity={"model": model},
        )
        PredictionStore(place.predictions).write(predictions, images_hash=testset.card.images_hash)
        for i, label in enumerate(labels):
            guess = IDS[topk[i, 0]]
            near = PARENTS[guess] == PARENTS[label]
            if guess != label:
                found[images[i], guess] = (
                    ("Fine-grained error", "Minor") if near else ("Spurious Correlation", "Major")
                )
    return found


def _judge(verdicts: dict[tuple[str, str], tuple[str, str]], path: Path) -> Path:
    from heldout.data.judgements.files import write_judgements

    write_judgements(
        path,
        [
            Judgement(
                question="mistake",
                subject={"image_id": image, "prediction": prediction},
                answer={"category": category, "severity": severity},
                who="ann",
            )
            for (image, prediction), (category, severity) in verdicts.items()
        ],
    )
    return path


def test_by_rules_then_learned(
    run: Run, verdicts: dict[tuple[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    ran = run("mistakes", "propose", "-t", "pets-1", "--json")
    assert ran.code == 0, ran.err
    assert "by rules" in ran.err
    rows = {(row["image_id"], row["prediction"]): row for row in of(ran, "proposal")}
    assert set(rows) == set(verdicts)
    assert all(row["basis"] == "rules" and row["severity"] is None for row in rows.values())
    assert all(
        rows[key]["category"] == "Fine-grained error"
        for key, answer in verdicts.items()
        if answer[0] == "Fine-grained error"
    )

    file = _judge(dict(list(verdicts.items())[:120]), tmp_path / "judged.jsonl")
    ran = run("mistakes", "propose", "-t", "pets-1", "--judged", file, "--json")
    assert ran.code == 0, ran.err
    assert "learned from 120 judged mistakes of judged.jsonl" in ran.err
    (said,) = re.findall(r"of 120 judged ones .*, (\d+) % .*\(kappa ([\d.]+)\)", ran.err)
    assert int(said[0]) > 90 and float(said[1]) > 0.8
    learned = {(row["image_id"], row["prediction"]): row for row in of(ran, "proposal")}
    right = [learned[key]["category"] == answer[0] for key, answer in verdicts.items()]
    assert np.mean(right) > 0.95
    sure = [(k, row["severity"]) for k, row in learned.items() if row["severity"] is not None]
    assert sure and all(verdicts[key][1] == said for key, said in sure)
    again = run("mistakes", "propose", "-t", "pets-1", "--judged", file, "--json")
    assert again.out == ran.out


def test_the_workspace_s_judgements_are_learned_from(
    run: Run, verdicts: dict[tuple[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    with JudgementStore(Workspace.find().judgements) as store:
        store.import_file(_judge(verdicts, tmp_path / "j.csv"))
    assert "learned from" in run("mistakes", "propose", "-t", "pets-1", "--json").err
    assert (
        "by rules" in run("mistakes", "propose", "-t", "pets-1", "--judged", "none", "--json").err
    )
    ran = run("mistakes", "propose", "-t", "pets-1", "-m", "good", "--full")
    assert ran.code == 0 and "Fine-grained error" in ran.out and "stand under dog" in ran.out


def test_knowledge_from_files(
    run: Run, verdicts: dict[tuple[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({"odd": ["pug", "sofa"], "rest": ["beagle", "boxer"]}))
    base = ("mistakes", "propose", "-t", "pets-1", "--json")
    ran = run(*base, "--superclasses", groups)
    assert ran.code == 0, ran.err
    for row in of(ran, "proposal"):
        near = {row["prediction"], *row["acceptable"]} in ({"pug", "sofa"}, {"beagle", "boxer"})
        assert (row["category"] == "Fine-grained error") == near
    assert run(*base, "--prototypes", "frequency").code == 0


def several_labels(path: Path) -> None:
    """A truth of two labels per image in the published form."""
    lists = ("correct_multi_labels", "unclear_multi_labels", "wrong_multi_labels")
    rows = [f'img-{i:03d},{i % 5},"{i % 5},{(i + 1) % 5}",,,False' for i in range(N)]
    head = ",".join(["id", "original_label", *lists, "is_problematic"])
    path.write_text("\n".join([head, *rows]) + "\n")


def test_company_changes_no_number(
    run: Run, verdicts: dict[tuple[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    """What is said of a model is the same beside others, and when another truth is added."""
    groups, again = tmp_path / "groups.json", tmp_path / "several.csv"
    groups.write_text(json.dumps({"odd": ["pug", "sofa"], "rest": ["beagle", "boxer"]}))
    several_labels(again)

    def of_good(*arguments: object) -> list[dict[str, Any]]:
        ran = run("score", "-t", "pets-1", "--metric", "top1", "--json", *arguments)
        assert ran.code == 0, ran.err
        kept = [r for r in ran.json if r.get("model") == "good" and r.get("statistic") != "rank"]
        return [r for r in kept if r["record"] in ("score", "tally")]

    evidence = ("--superclasses", groups, "--peer", "poor")
    alone = [of_good("-m", "good"), of_good("-m", "good", *evidence)]
    assert [of_good(), of_good(*evidence)] == alone
    assert not {"minor", "explained"} & {row.get("statistic") for row in alone[0]}
    assert {"minor", "explained"} < {row.get("statistic") for row in alone[1]}
    said = {row["evidence"] for row in alone[1] if row.get("statistic") == "minor"}
    assert len(said) == 1 and "superclasses groups.json@" in (text := said.pop())
    assert "1 peers poor@" in text and "not compared with what people say" in text
    added = run("import", "truth", again, "-t", "pets-1", "--name", "a-truth")
    assert added.code == 0, added.err
    for before, after in zip(
        alone, [of_good("-m", "good"), of_good("-m", "good", *evidence)], strict=True
    ):
        assert [{**row, "testset_hash": ""} for row in after] == [
            {**row, "testset_hash": ""} for row in before
        ]
    for arguments in (
        ("--seen-together", "no-truth"),
        ("--peer", "nobody"),
        ("--superclasses", "x"),
    ):
        ran = run("score", "-t", "pets-1", *arguments)
        assert ran.code == 2 and str(arguments[1]) in ran.err
    ran = run("score", "-t", "pets-1", "--no-mistakes", "--peer", "poor")
    assert ran.code == 2 and "--peer" in ran.err


def test_another_truth_never_counts_on_the_judged_images(
    run: Run, verdicts: dict[tuple[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    several = tmp_path / "several.csv"
    several_labels(several)
    assert run("import", "truth", several, "-t", "pets-1", "--name", "several").code == 0
    base = ("mistakes", "propose", "-t", "pets-1", "--json")
    own = run(*base, "--truth", "several")
    assert own.code == 0 and "seen together in truth several" in own.err
    ran = run(*base, "--seen-together", "several")
    assert ran.code == 2 and "no image outside truth original" in ran.err
    assert "seen together" not in run(*base).err
    ran = run("score", "-t", "pets-1", "--seen-together", "several")
    assert ran.code == 2 and "no image outside truth original" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-t", "none"), "none"),
        (("-t", "pets-1", "--judged", "missing.jsonl"), "missing.jsonl"),
        (("-t", "pets-1", "--superclasses", "missing.json"), "missing.json"),
        (("-t", "pets-1", "--prototypes", "beauty"), "beauty"),
        (("-t", "pets-1", "--peer", "nobody"), "nobody"),
        (("-t", "pets-1", "--encoder", "clip"), "no encoder 'clip'"),
        ((), "--testset"),
    ],
)
def test_what_the_user_can_mend(
    run: Run,
    verdicts: dict[tuple[str, str], tuple[str, str]],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    ran = run("mistakes", "propose", *arguments)
    assert ran.code == 2 and said in ran.err and len(ran.err.strip().splitlines()) <= 2


def test_an_encoder_looks_at_the_images(run: Run, tmp_path: Path) -> None:
    """Images of colours, an encoder that knows them, and a colour in the hierarchy that is no class."""
    from tests.models.predictions.running_case import make_set

    made = make_set(tmp_path, images=12, broken=())
    parents = {"cherry": ("red",), "blood": ("red",), "grass": ("green",), "sky": ("blue",)}
    space = LabelSpace(
        "colours", tuple(Class(name, names=(name,), parents=up) for name, up in parents.items())
    )
    ids = made.image_ids.to_pylist()
    testset = make_testset(
        Card(name="colours-2", label_space="colours"),
        images=made.images,
        truths={"original": truth_table(ids, ["grass"] * len(ids))},
        label_space=space,
    )
    place = Workspace.find()
    save(testset, place.testsets / "colours-2")
    predictions = Predictions(
        model="red",
        image_ids=testset.image_ids,
        topk=np.zeros((len(ids), 1), dtype=np.int32),
        label_space=space,
        identity={"model": "red"},
    )
    PredictionStore(place.predictions).write(predictions, images_hash=testset.card.images_hash)
    ran = run(
        "mistakes", "propose", "-t", "colours-2", "--encoder", "fake", "--images",
        tmp_path / "files", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert len(of(ran, "proposal")) == len(ids)
