"""``heldout run``: a declared run, every step a verb and every key a flag."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from heldout.cli.console import emit, gathering, out, print_table, say
from heldout.cli.options import ExcludeOption, JsonOption, SeedOption, WorkspaceOption
from heldout.core.errors import EXIT_DONE, BadFile, NotFound, UserError
from heldout.core.workspace import Workspace, check_slug


def run(
    file: Annotated[Path, typer.Argument(help="The run file (TOML).")],
    values: Annotated[
        list[str] | None,
        typer.Option("--set", help="Value of an input of the run: name=value; repeatable."),
    ] = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Run a file of steps; the same file again does only what is missing."""
    from heldout.core.workspace import Workspace

    code = execute(
        read_runfile(file),
        parse_values(values or []),
        workspace=Workspace.find(workspace),
        as_json=as_json,
    )
    if code:
        raise typer.Exit(code)


SCHEMA_VERSION = 1
_STEP_WORDS = {"verb", "args", "each"}
_VARIABLE = re.compile(r"\{(\w+)\}")

Value = str | bool | int | float | list[str]


@dataclass(frozen=True)
class RunFile:
    """A parsed run file."""

    name: str
    path: Path
    steps: tuple[dict[str, Any], ...]
    inputs: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)
    published: tuple[dict[str, Any], ...] = ()
    source: str = ""
    quick: Mapping[str, Any] = field(default_factory=dict)


def read_runfile(path: Path) -> RunFile:
    """Read and check a run file."""
    if not path.is_file():
        raise NotFound(f"no run file {path}", fix="check the path")
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFile(path, f"is not valid TOML ({error})", fix="correct the file") from None
    if value.get("schema_version") != SCHEMA_VERSION:
        raise BadFile(path, "has no schema_version = 1", fix="add it at the top")
    steps = value.get("step", [])
    if not steps or not all(
        isinstance(step, dict) and isinstance(step.get("verb"), str) for step in steps
    ):
        raise BadFile(path, "has no [[step]] with a verb", fix="add at least one")
    return RunFile(
        name=check_slug(str(value.get("name", path.stem)), "a run"),
        path=path,
        steps=tuple(steps),
        inputs=value.get("inputs", {}),
        lists=value.get("lists", {}),
        published=tuple(value.get("published", [])),
        source=str(value.get("source", "")),
        quick=value.get("quick", {}),
    )


def parse_values(pairs: Sequence[str]) -> dict[str, str]:
    """Values given as ``name=value``."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair!r}", fix="write name=value")
        found[name] = value
    return found


def execute(
    runfile: RunFile,
    values: Mapping[str, Any],
    *,
    workspace: Workspace,
    as_json: bool = False,
    quiet: bool = False,
) -> int:
    """Run every step, then hand over the records of all of them (``quiet``: only the steps' own).

    Returns the highest exit code of a step: images that failed, or a gate that was not met, do not
    keep the steps after it from running.
    """
    from heldout.cli.app import INTERRUPTED, app

    known = _inputs(runfile, values)
    known["run"] = (workspace.runs / runfile.name).as_posix()
    known["testsets"] = workspace.testsets.as_posix()
    for name, pattern in runfile.lists.items():
        known[name] = _matching(str(_expand(pattern, known)), runfile)
    worst = EXIT_DONE
    with gathering() as records:
        for step in runfile.steps:
            for arguments in step_arguments(step, known, workspace):
                say(f"· heldout {' '.join(arguments)}")
                code = int(app(arguments, standalone_mode=False) or EXIT_DONE)
                if code == INTERRUPTED:
                    raise KeyboardInterrupt
                worst = max(worst, code)
    if quiet:
        return worst
    emit(records, as_json=as_json)
    if runfile.published and not as_json:
        _show_published(runfile, records)
    return worst


def _inputs(runfile: RunFile, values: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(values) - set(runfile.inputs))
    if unknown:
        raise UserError(
            f"run {runfile.name} has no input {unknown[0]!r}",
            fix=f"it has {', '.join(runfile.inputs)}",
        )
    known: dict[str, Any] = {}
    for name, spec in runfile.inputs.items():
        if name in values:
            given = values[name]
            known[name] = [str(v) for v in given] if isinstance(given, list) else str(given)
        elif "default" in spec:
            known[name] = spec["default"]
        else:
            raise UserError(
                f"run {runfile.name} needs {name}: {spec.get('help', '')}", fix=f"give --{name}"
            )
    return known


def _matching(pattern: str, runfile: RunFile) -> list[str]:
    folder, _, glob = pattern.rpartition("/")
    if not Path(folder).is_dir():
        raise NotFound(f"run {runfile.name}: no folder {folder}", fix="check the path")
    names = sorted(path.name for path in Path(folder).glob(glob) if not path.name.startswith("."))
    if not names:
        raise NotFound(
            f"run {runfile.name}: nothing matches {pattern}", fix="check the layout of the folder"
        )
    return names


def step_arguments(
    step: Mapping[str, Any], known: Mapping[str, Any], workspace: Workspace
) -> list[list[str]]:
    """The command lines of one step: one, or one for each name of its ``each`` list."""
    each = step.get("each")
    if each is not None and not isinstance(known.get(each), list):
        raise UserError(
            f"step {step['verb']!r} runs for each of {each!r}, which is no list of the run"
        )
    found = []
    for name in known[each] if each is not None else [None]:
        scope = dict(known) if name is None else {**known, "each": name}
        flags: list[str] = []
        for key, value in step.items():
            if key not in _STEP_WORDS:
                flags += _flag(key.replace("_", "-"), _expand(value, scope))
        positional = _expand(step.get("args", []), scope)
        args = positional if isinstance(positional, list) else [str(positional)]
        place = ["--workspace", workspace.root.as_posix()] if step.get("workspace") is None else []
        found.append([*step["verb"].split(), *args, *flags, *place])
    return found


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else [f"--no-{name}"]
    if isinstance(value, list):
        return [part for item in value for part in (f"--{name}", str(item))]
    return [f"--{name}", str(value)]


def _expand(value: Any, known: Mapping[str, Any]) -> Any:
    """Fill in ``{variables}``; a text that is one list variable becomes the list."""
    if isinstance(value, list):
        parts = [_expand(item, known) for item in value]
        return [leaf for part in parts for leaf in (part if isinstance(part, list) else [part])]
    if not isinstance(value, str):
        return value
    whole = _VARIABLE.fullmatch(value)
    if whole and isinstance(known.get(whole[1]), list):
        return known[whole[1]]

    def fill(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise UserError(
                f"a run file uses {{{match[1]}}}, which is not defined",
                fix="declare it under [inputs]",
            )
        return str(known[match[1]])

    return _VARIABLE.sub(fill, value)


def _show_published(runfile: RunFile, records: Sequence[Any]) -> None:
    """Ours beside the published value, where both exist."""
    from heldout.measure.score.records import Count, Score

    counted = {(r.testset, r.model, r.name): r.value for r in records if isinstance(r, Count)}
    ours = {
        (r.model, r.testset, r.metric): r.value
        for r in records
        if isinstance(r, Score) and r.slice == "all"
    }
    rows = []
    for entry in runfile.published:
        if "count" in entry:
            who = entry.get("model")
            number = counted.get((entry["testset"], who, entry["count"]))
            if number is not None:
                same = "yes" if number == entry["value"] else "no"
                row = [
                    who or "",
                    entry["testset"],
                    entry["count"],
                    f"{number:,}",
                    f"{entry['value']:,}",
                ]
                rows.append([*row, same])
            continue
        value = ours.get((entry["model"], entry["testset"], entry["metric"]))
        if value is None:
            continue
        text = str(entry["percent"])
        digits = len(text.partition(".")[2])
        equal = f"{100 * value:.{digits}f}" == f"{entry['percent']:.{digits}f}"
        rows.append(
            [
                entry["model"],
                entry["testset"],
                entry["metric"],
                f"{100 * value:.3f}",
                text,
                "yes" if equal else "no",
            ]
        )
    if rows:
        print_table(
            "ours beside the published value, scores in percent",
            ["model", "test set", "metric", "ours", "published", "equal"],
            rows,
            left=3,
        )
        if runfile.source:
            out(f"published: {runfile.source}")


def reproduce(
    name: Annotated[
        str, typer.Argument(help="clip-geoyfcc, imagenetv2, metashift, mistakes or siscore.")
    ],
    data: Annotated[Path, typer.Option(help="Folder of the published data.")],
    predictions: Annotated[
        Path | None, typer.Option(help="mistakes: folder of <model>.npy on the validation set.")
    ] = None,
    order: Annotated[
        Path | None,
        typer.Option(help="mistakes: dataset file that names the rows of the predictions."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="siscore: models to evaluate; lite0 by default."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="siscore: coarser grids, done in a minute or two.")
    ] = False,
    exclude: ExcludeOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Reproduce a published result with the public verbs, and write its report under runs/."""
    from heldout.cli.reproductions import published_run
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace

    runfile = read_runfile(published_run(name))
    if quick and not runfile.quick:
        raise UserError(f"{name} has no quick form", fix="leave out --quick")
    values = {
        "data": data,
        "predictions": predictions,
        "order": order,
        "model": model,
        "exclude": exclude or [],
    }
    given = {k: v for k, v in values.items() if v is not None and k in runfile.inputs}
    code = execute(
        runfile,
        {**(runfile.quick if quick else {}), **given},
        workspace=Workspace.find(workspace),
        as_json=as_json,
    )
    raise typer.Exit(code)


def demo(seed: SeedOption = 0, workspace: WorkspaceOption = None) -> None:
    """Cut objects out of real photographs, vary size, place and rotation, evaluate three models."""
    from heldout.core.workspace import Workspace
    from heldout.measure.evaluation.demonstration import write_inputs

    place = Workspace.find(workspace or Path("heldout-demo"))
    inputs = write_inputs(place.root / "inputs")
    runfile = read_runfile(Path(__file__).with_name("demo.toml"))
    code = execute(runfile, {"inputs": inputs, "seed": seed}, workspace=place, quiet=True)
    report = place.runs / "demo" / "report.html"
    out(f"report: {report}")
    out("open it in a browser; then look further, for example with")
    out(f"  heldout ls --columns --workspace {place.root}")
    out(f"  heldout score -t demo-size-1 --by object --by size --workspace {place.root}")
    out(f"  heldout compare lite0 lite2 -t demo-size-1 --by size --workspace {place.root}")
    raise typer.Exit(code)
