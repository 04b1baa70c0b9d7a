"""``heldout build contexts``, ``contexts graph`` and ``contexts distance``, end to end."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from heldout.cli.app import invoke
from heldout.core.errors import EXIT_DONE, EXIT_USER
from heldout.data.testset import load
from heldout.data.testset.testset import save
from tests.curate.contexts.contexts_examples import pool_of_words, random_shown


class Command:
    """Runs the command in a workspace of its own and keeps what it said."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys
        self.said = ""

    def __call__(self, *arguments: object, code: int = EXIT_DONE) -> str:
        found = invoke([*map(str, arguments), "--workspace", str(self.root)])
        out, self.said = self._capsys.readouterr()
        assert found == code, self.said
        return out

    def records(self, *arguments: object) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = json.loads(self(*arguments, "--json"))
        return records

    def counts(self, *arguments: object) -> dict[str, int]:
        return {r["name"]: r["value"] for r in self.records(*arguments) if r["record"] == "count"}

    def error(self, *arguments: object) -> str:
        self(*arguments, code=EXIT_USER)
        assert self.said.startswith("error: ") or "\nerror: " in self.said
        lines = self.said.strip().splitlines()
        assert sum(line.startswith("error: ") for line in lines) == 1
        return lines[-1]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


@pytest.mark.shared
def test_published_attribute_subsets(run: Command, shared_data: Path) -> None:
    source = shared_data / "metashift" / "attributes-candidate-subsets.pkl"
    counts = run.counts(
        "build", "contexts", "--source", "metashift", source, "-o", run.root / "OUT"
    )
    assert counts == {
        "subsets": 4962,
        "subjects": 337,
        "contexts": 101,
        "images": 59663,
        "subsets_at_minimum": 1194,
        "subjects_at_minimum": 285,
        "images_at_minimum": 56905,
        "classes_above_minimum": 66,
        "subsets_kept": 679,
        "images_kept": 49938,
    }
    assert "4,962 candidate subsets" in run.said
    graph = run.counts("contexts", "graph", run.root / "OUT", "cat")
    assert graph == {
        "cat_nodes": 13,
        "cat_edges": 19,
        "cat_components": 1,
        "cat_communities": 3,
        "cat_community_1": 6,
        "cat_community_2": 5,
        "cat_community_3": 2,
    }
    testset = load(run.root / "OUT")
    subsets = [r["value"] for r in testset.memberships.to_pylist() if r["column"] == "subset"]
    assert len(set(subsets)) == 679


@pytest.mark.shared
def test_published_objects_in_one_image(run: Command, shared_data: Path) -> None:
    source = shared_data / "metashift" / "attributes-candidate-subsets.pkl"
    build = ("build", "contexts", "--source", "metashift", source, "-o", run.root / "OUT")
    counts = run.counts(*build, "--kind", "object")
    assert counts["subsets"] == 42416
    assert counts["subsets_at_minimum"] == 2808
    assert counts["classes_above_minimum"] == 116
    graph = run.counts("contexts", "graph", run.root / "OUT", "dog")
    assert (graph["dog_nodes"], graph["dog_edges"], graph["dog_components"]) == (27, 24, 7)
    (record,) = run.records(
        "contexts", "distance", run.root / "OUT", "dog(couch)", "dog(grass)", "--mode", "published"
    )
    assert "note: the graph of 27 nodes falls into 7 parts" in run.said
    assert "7 parts" in record["notes"][0]
    (record,) = run.records("contexts", "distance", run.root / "OUT", "dog(couch)", "dog(grass)")
    assert record["low"] < record["value"] < record["high"] <= 1
    assert run.said == ""


@pytest.fixture
def pool(run: Command) -> Path:
    shown = random_shown(3, 200, "cat dog sofa bed car tree grass", most=4)
    save(pool_of_words(shown, name="street"), run.root / "pools" / "street")
    return run.root / "pools" / "street"


SMALL = ("--minimum", 8, "--more-than", 2)


def test_from_a_pool_and_again(run: Command, pool: Path) -> None:
    first = run.counts("build", "contexts", "street", *SMALL)
    folder = run.root / "testsets" / "street-contexts"
    assert first["subsets_kept"] == 42
    planned = run.counts("build", "contexts", pool, *SMALL, "--plan")
    assert planned == first
    assert run.counts("build", "contexts", pool, *SMALL) == first
    assert "holds another test set" in run.error(
        "build", "contexts", pool, "--minimum", 9, "--more-than", 2
    )
    run("build", "contexts", pool, "--minimum", 9, "--more-than", 2, "--replace")
    assert load(folder).card.recipe["parameters"]["minimum"] == 9
    shown = run("contexts", "graph", "street-contexts", "cat")
    assert "cat: 6 subsets" in shown
    assert "farthest" in shown


def test_policies_reach_the_recipe(run: Command, pool: Path) -> None:
    tree = run.root / "tree.json"
    tree.write_text('{"animal": ["cat", "dog"], "plant": ["tree", "grass"]}')
    words = run.root / "words.json"
    words.write_text('{"sofa": ["bed"]}')
    run(
        "build", "contexts", "street", *SMALL, "--name", "pets", "--subject", "@animal",
        "--exclude-subset", "*(car)", "--pair", "cat+dog", "--hierarchy", tree, "--synonym", words,
        "--communities", "louvain", "--seed", 5, "--more-than", 0, "--reserve", "dog(grass)",
    )  # fmt: skip
    testset = load(run.root / "testsets" / "pets")
    asked = testset.card.recipe["parameters"]
    assert asked["pairs"] == ["cat+dog"]
    assert asked["synonyms"] == ["bed=sofa"] and "paths" not in asked
    assert testset.card.recipe["seed"] == 5
    names = {r["value"] for r in testset.memberships.to_pylist() if r["column"] == "subset"}
    assert names == {"cat(sofa)", "cat(tree)", "dog(sofa)", "dog(tree)", "dog(grass)"}


def test_from_a_table_of_tags(run: Command) -> None:
    path = run.root / "tags.csv"
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["file", "labels"])
        for image, words in random_shown(1, 100, "cat dog sofa bed", most=3).items():
            writer.writerow([image, ";".join(words)])
    run("collect", "table", path, "--id-column", "file", "--tag", "labels", "--separator",
        "labels=;", "--name", "tags")  # fmt: skip
    counts = run.counts(
        "build",
        "contexts",
        "tags",
        "--object",
        "labels",
        "--minimum",
        5,
        "--more-than",
        0,
        "--plan",
    )
    assert counts["subsets"] == 12


def test_distances_of_merged_collections(run: Command, pool: Path) -> None:
    run("build", "contexts", "street", *SMALL)
    place = ("contexts", "distance", "street-contexts")
    (record,) = run.records(*place, "cat(sofa)+cat(bed)", "cat(tree)", "--replicates", 50)
    assert record["a"] == ["cat(bed)", "cat(sofa)"]
    assert record["record"] == "distance" and record["mode"] == "default"
    assert (
        record["testset_hash"] == load(run.root / "testsets" / "street-contexts").card.content_hash
    )
    shown = run(*place, "cat(sofa)", "dog(sofa)")
    assert "cat(sofa)  dog(sofa)  default" in shown
    nodes = [f"--node={name}=cat({words.replace('+', ')+cat(')})" for name, words in
             (("in", "sofa+bed"), ("out", "tree+grass"), ("road", "car"))]  # fmt: skip
    (record,) = run.records(*place, "in", "out+road", "--mode", "published", *nodes)
    assert record["b"] == ["out", "road"]


def test_a_saved_graph_is_json(run: Command, pool: Path) -> None:
    run("build", "contexts", "street", *SMALL)
    file = run.root / "cat.json"
    records = run.records(
        "contexts", "graph", "street-contexts", "cat", "-o", file,
        "--measure", "jaccard", "--threshold", 0.1, "--communities", "louvain",
    )  # fmt: skip
    graph = json.loads(file.read_text())
    (record,) = [record for record in records if record["record"] == "graph"]
    nodes = [record for record in records if record["record"] == "subset"]
    assert graph["measure"] == record["measure"] == "jaccard"
    assert len(graph["overlap"]) == len(graph["sizes"]) == len(nodes)
    assert [node["name"] for node in nodes] == graph["subsets"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("build contexts street --minimum 900", "no subset reaches 900 images"),
        ("build contexts street --subject cta", "did you mean cat"),
        ("build contexts street --kind colour", "--kind is 'colour': give one of object"),
        ("build contexts street --pair cat", "write cat+dog"),
        ("build contexts street --roll-up", "--roll-up needs --hierarchy"),
        ("build contexts street other", "name the --source"),
        ("build contexts street --synonym nowhere.json", "nowhere.json"),
        ("build contexts nowhere", "nowhere"),
        ("contexts graph made cow", "no class 'cow': there is"),
        ("contexts graph nowhere cat", "no test set 'nowhere'"),
        ("contexts distance made sofa cat(bed)", "is not a subset"),
        ("contexts distance made cat(sofa) cat(bed) --mode published --node x", "write name=value"),
        (
            "contexts distance made cat(sofa) cat(bed) --minimum -1",
            "--minimum is '-1': give a whole number >= 1",
        ),
        ("contexts distance made cat(sofa) cat(bed) --replicates 1", "give a whole number >= 2"),
        ("contexts split places roads --class cat -o OUT", "there is street"),
        (
            "contexts distance made cat(sofa) cat(bed) --node x=cat(car)",
            "no use with --mode default",
        ),
        (
            "contexts split domain made --test cat(bed) --train cat(sofa) -o OUT --test-set a/b",
            "such as a-b",
        ),
        ("contexts split folders made --folders x -o OUT", "give one of link, hardlink, copy"),
    ],
)
def test_errors_are_one_line_with_the_fix(
    run: Command, pool: Path, arguments: str, message: str
) -> None:
    if " made " in arguments:
        run("build", "contexts", "street", *SMALL, "--name", "made")
    out = run.root / "out"
    assert message in run.error(*arguments.replace("OUT", str(out)).split())
    assert not out.exists()


def test_a_pool_is_found_by_name_and_a_folder_has_any_name(run: Command, pool: Path) -> None:
    found = run.counts(
        "contexts", "split", "places", "street", "--class", "cat", "-o", run.root / "by-name"
    )
    other = run.counts(
        "contexts", "split", "places", pool, "--class", "cat", "-o", run.root / "by-path"
    )
    assert found == other and set(found) == {"cat(indoor)", "cat(outdoor)"}
    run("build", "contexts", "street", *SMALL, "-o", run.root / "mit Größe")
    assert load(run.root / "mit Größe").name == "mit-Gr-e"


def test_a_pickle_that_runs_code_is_refused(run: Command) -> None:
    import pickle

    class Bad:
        def __reduce__(self) -> Any:
            return (print, ("never",))

    path = run.root / "bad.pkl"
    path.write_bytes(pickle.dumps({"cat(sofa)": Bad()}))
    error = run.error("build", "contexts", "--source", "metashift", path)
    assert "refused as a pickle" in error
    assert "never" not in error
