"""The command as a whole: what it loads, what it lists, how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from heldout.cli.app import Group, VerbCommand
from heldout.front import VERBS
from heldout.measure.evaluation.demonstration import COMPOSED
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
HEAVY = {
    "numpy", "scipy", "pyarrow", "pandas", "PIL", "sqlalchemy", "httpx", "jinja2", "rich", "pydantic",
    "torch", "onnxruntime", "asyncio", "playwright", "vl_convert",
}  # fmt: skip


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, io, contextlib, json\n"
        "from heldout.cli.app import invoke\n"
        "with contextlib.redirect_stdout(io.StringIO()): invoke(['--help'])\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(ran.stdout))
    assert not loaded & HEAVY
    ours = {name for name in loaded if name.startswith("heldout")}
    heads = {name.rpartition(".")[0] for name in ours}  # packages, which load nothing themselves
    rooms = {name for name in ours - heads if not name.endswith("requests")}
    core = {name for name in rooms if name.startswith(("heldout.core.", "heldout.cli."))}
    # Beside the front itself: tables of presets, and rules of stopping, that requests name.
    assert rooms - core == {
        "heldout.front",
        "heldout.curate.crowd.stopping",
        "heldout.data.published.clip_geoyfcc_exclusions",
    }


def test_verbs_are_documented() -> None:
    """The table of verbs in the documentation and the command line name the same verbs."""
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| \[`([a-z -]+)`\]", text, re.MULTILINE))
    assert documented == {verb.name for verb in VERBS}


def _all_commands(group: Group) -> Iterator[VerbCommand]:
    context = click.Context(group)
    for name in group.list_commands(context):
        below = group.get_command(context, name)
        if isinstance(below, Group):
            yield from _all_commands(below)
        else:
            assert isinstance(below, VerbCommand)
            yield below


def test_every_verb_has_help(run: Run) -> None:
    for verb in _all_commands(Group()):
        words = [*verb.verb.name.split(), *([verb.kind] if verb.kind else [])]
        ran = run(*words, "--help")
        assert ran.code == 0 and len(ran.out.splitlines()) > 5
        assert "todo" not in ran.out.lower()
        assert verb.help, verb.name
        for field in verb.shown:
            assert field.help, (verb.name, field.name)


def test_version(run: Run) -> None:
    from heldout import __version__

    assert run("--version").out.strip() == f"heldout {__version__}"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    heldout = Path(sys.executable).parent / "heldout"
    line = f"{heldout} labels find a --full | head -n 1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, cwd=tmp_path
    )
    assert ran.stderr == "" and ran.returncode == 0


def test_demo_makes_a_report(run: Run, tmp_path: Path) -> None:
    place = ("-w", tmp_path / "demo")
    ran = run("demo", *place)
    assert ran.code == 0
    page = (tmp_path / "demo/runs/demo/report.html").read_text(encoding="utf-8")
    listed = run("ls", *place, "--json").json
    assert {row["testset"]: row["models"] for row in listed} == {
        name: ["lite0", "lite1", "lite2"] for name in COMPOSED
    }
    assert all(name in page for name in COMPOSED)
    again = run("demo", *place)
    assert again.err.count("everything is stored (3 models)") == 3
    assert again.err.count("unchanged") == 3, "no image is made twice"
    records = run("score", "-t", "demo-size-1", "--metric", "top1", *place, "--json").json
    scores = {(r["model"], r["slice"]): r for r in records if r["record"] == "score"}
    for model in ("lite0", "lite1", "lite2"):
        small, large = (scores[model, f"size={size}"]["value"] for size in (0.02, 0.3))
        assert small <= 0.5 < 0.8 <= large, "objects are lost as they become small"
    turned = run("score", "-t", "demo-rotation-1", "--metric", "top1", *place, "--json").json
    for model in ("lite0", "lite1", "lite2"):
        upright, down = (
            next(
                r["value"]
                for r in turned
                if (r.get("model"), r.get("slice")) == (model, f"rotation={angle}")
            )
            for angle in (1, 181)
        )
        assert upright > down
    assert run("verify", *place).code == 0


def test_results_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from heldout import Workspace, evaluate\n"
        "from heldout.testing.example import make_example\n"
        "place = Workspace(Path(sys.argv[1])); make_example(place, images=200)\n"
        "names = ['example-original', 'example-shifted']\n"
        "by = ['light', 'context', 'x&y']\n"
        "print(evaluate('all', names, metrics=['top1', 'mean_per_class', 'nll'], by=by, "
        "baseline=names[0], workspace=place).to_json())"
    )
    outs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        ran = subprocess.run(command, env=env, check=True, capture_output=True)
        outs.append(ran.stdout)
    assert outs[0] == outs[1] and len(outs[0]) > 10_000
