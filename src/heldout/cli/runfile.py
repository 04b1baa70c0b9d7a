"""Run files: a declared run, every step a verb and every key one of its fields."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_DONE, BadFile, NotFound, UserError
from heldout.core.files import check_writable, write_text
from heldout.core.records import Count, Table, to_json
from heldout.core.request import Request, Seed, argument, fields, make, option
from heldout.core.schema import Document, read
from heldout.core.workspace import Workspace, check_slug
from heldout.front import Verb, find

PUBLISHED = Path(__file__).with_name("reproductions")
_STEP_WORDS = {"verb", "args", "each", "save", "workspace"}
_VARIABLE = re.compile(r"\{(\w+)\}")


class RunRequest(Request, frozen=True, kw_only=True):
    """Run a file of steps, or reproduce a published result.

    Run again, it does only what is missing.
    """

    file: Annotated[
        str,
        argument(
            "The run file (TOML), or a published result: clip-geoyfcc, imagenetv2, metashift, "
            "mistakes or siscore."
        ),
    ]
    values: Annotated[
        Mapping[str, Any],
        option("Value of an input of the run: name=value; repeatable.", flag="set"),
    ] = {}
    quick: Annotated[bool, option("The quick form of the run, where it has one.")] = False


class DemoRequest(Request, frozen=True, kw_only=True):
    """Show the main job: build test sets, evaluate, report; offline.

    Objects are cut out of real photos, put on backgrounds in other sizes, places and turns, and three
    models are evaluated on them. heldout demo replicate draws three test sets like another one, by
    the votes of a simulated crowd.
    """

    job: Annotated[Literal["compose", "replicate"], argument("What is shown.")] = "compose"
    seed: Seed = 0


class Input(Document, frozen=True, kw_only=True):
    """A value that a run file takes."""

    help: str = ""
    default: Any = None


class PublishedValue(Document, frozen=True, kw_only=True):
    """A number that was published: a metric in percent, a count, or the slope of a line."""

    testset: str
    model: str | None = None
    metric: str = ""
    percent: int | float = 0
    count: str = ""
    value: int | float = 0
    slope: float | None = None
    baseline: str = ""
    exclude: str = ""
    models: int = 0


class RunFile(Document, frozen=True, kw_only=True):
    """A run file."""

    schema_version: int = 1
    name: str = ""
    source: str = ""
    inputs: Mapping[str, Input] = {}
    lists: Mapping[str, str] = {}
    quick: Mapping[str, Any] = {}
    step: tuple[dict[str, Any], ...] = ()
    published: tuple[PublishedValue, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Published:
    """Our number beside the published one."""

    record: ClassVar[str] = "published"
    table: ClassVar[Table] = Table(
        "ours beside the published value, scores in percent",
        ("model", "test set=testset", "metric", "ours:,", "published:,", "equal"),
        rows=40,
    )
    model: str | None
    testset: str
    metric: str
    ours: float
    published: float
    equal: bool


def run(request: RunRequest, context: Context) -> Result:
    """Run every step, then hand over the records of all of them."""
    path = Path(request.file)
    if not path.is_file():
        path = PUBLISHED / f"{request.file}.toml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in PUBLISHED.glob("*.toml")))
        raise NotFound(
            f"no run file {request.file}", fix=f"name a file, or a published result: {known}"
        )
    runfile = read_runfile(path)
    if request.quick and not runfile.quick:
        raise UserError(f"run {runfile.name} has no quick form", fix="leave out --quick")
    values = {**(runfile.quick if request.quick else {}), **request.values}
    return execute(runfile, values, context)


def demo(request: DemoRequest, context: Context) -> Result:
    """The demonstration, in a workspace of its own unless one is named."""
    from heldout.measure.evaluation.demonstration import write_crops, write_inputs

    if context.workspace.root == Path():
        context.workspace = Workspace(Path("heldout-demo"))
    place = context.workspace
    folder = place.root / "inputs"
    if request.job == "replicate":
        name, inputs = "demo-replicate", write_crops(folder / "replicate", request.seed)
        further = (
            "crowd votes demo-candidates demo-original",
            "score -t demo-matched --by frequency",
            "verify demo-matched --audit",
        )
    else:
        name, inputs = "demo", write_inputs(folder)
        further = (
            "ls --columns",
            "score -t demo-size-1 --by object --by size",
            "compare lite0 lite2 -t demo-size-1 --by size",
        )
    made = execute(
        read_runfile(Path(__file__).with_name(f"{name}.toml")),
        {"inputs": inputs.as_posix(), "seed": request.seed},
        context,
    )
    lines = [
        f"report: {place.runs / name / 'report.html'}",
        "open it in a browser; then look further, for example with",
        *(f"  heldout {command} --workspace {place.root}" for command in further),
    ]
    return Result(records=made.records, brief=(), lines=lines, code=made.code)


def read_runfile(path: Path) -> RunFile:
    """Read and check a run file."""
    found = read(path, RunFile, fix="see docs/formats.md, run files")
    if not found.step or not all(isinstance(step.get("verb"), str) for step in found.step):
        raise BadFile(path, "has no [[step]] with a verb", fix="add at least one")
    check_slug(found.name or path.stem, "a run")
    return found


def execute(runfile: RunFile, values: Mapping[str, Any], context: Context) -> Result:
    """Run every step; the records of all, and the highest exit code.

    Images that failed, or a gate that was not met, do not keep the steps after it from running.
    """
    known = _inputs(runfile, values)
    known["run"] = (context.workspace.runs / runfile.name).as_posix()
    known["testsets"] = context.workspace.testsets.as_posix()
    for name, pattern in runfile.lists.items():
        known[name] = _matching(str(_expand(pattern, known)), runfile)
    records: list[Any] = []
    worst = EXIT_DONE
    for step in runfile.step:
        for given in step_values(step, known):
            context.say(f"· {_shown(step['verb'], given)}")
            made = _run_step(step["verb"], given, context)
            records += made.records
            worst = max(worst, made.code)
    published = list(_beside(runfile, records))
    lines = [f"published: {runfile.source}"] if published and runfile.source else []
    return Result(records=[*records, *published], brief=published or None, lines=lines, code=worst)


def _run_step(name: str, given: dict[str, Any], context: Context) -> Result:
    verb, kind = find_step(name)
    for key in ("save", "workspace"):
        if not isinstance(given.get(key, ""), str):
            raise UserError(f"step {name!r} has {key} = {given[key]!r}", fix="give one path")
    save = given.pop("save", None)
    check_writable(Path(save) if save is not None else None)
    if "workspace" in given:
        context = Context(Workspace(Path(given.pop("workspace"))), talk=context.talk)
    if kind:
        given[verb.type.tag] = kind
    _check_names(verb.type.kinds[kind] if kind else verb.type, given)
    result = verb.run(make(verb.type, given), context)
    if save is not None:
        write_text(Path(save), to_json(result.records) + "\n")
    return result


def _check_names(request: type[Request], given: Mapping[str, Any]) -> None:
    """Say what an option of before is now."""
    from heldout.cli.app import now_named

    known = {spelling for f in fields(request) for spelling in (f.name, f.flag.replace("-", "_"))}
    for key in given:
        new = now_named(key, request)
        if new and key.replace("-", "_") not in known:
            raise UserError(f"no option {key!r}", fix=f"it is {new} now")


def find_step(name: str) -> tuple[Verb, str]:
    """The verb of a step, and its kind where the step's name ends with one."""
    words = name.split()
    for size in range(len(words), 0, -1):
        verb = find(" ".join(words[:size]))
        if verb is not None and (size == len(words) or verb.type.kinds):
            return verb, " ".join(words[size:])
    from heldout.cli.app import RETIRED

    fix = RETIRED.get(name, "heldout --help lists the verbs")
    raise UserError(f"a run file has the step {name!r}", fix=fix)


def step_values(step: Mapping[str, Any], known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of one step: once, or once for each name of its ``each`` list."""
    each = step.get("each")
    if each is not None and not isinstance(known.get(each), list):
        raise UserError(
            f"step {step['verb']!r} runs for each of {each!r}, which is not a list of the run"
        )
    found = []
    for name in known[each] if each is not None else [None]:
        scope = dict(known) if name is None else {**known, "each": name}
        given = {
            key: _expand(value, scope) for key, value in step.items() if key not in _STEP_WORDS
        }
        given |= {key: _expand(step[key], scope) for key in ("save", "workspace") if key in step}
        given |= _placed(step["verb"], _expand(step.get("args", []), scope))
        found.append(given)
    return found


def _placed(name: str, args: Any) -> dict[str, Any]:
    """Positional values by the names of the verb's arguments; the first of many takes the rest."""
    values = args if isinstance(args, list) else [args]
    if not values:
        return {}
    verb, kind = find_step(name)
    request = verb.type.kinds[kind] if kind else verb.type
    places = [field for field in fields(request) if field.argument and field.name != verb.type.tag]
    given: dict[str, Any] = {}
    rest = list(values)
    for position, field in enumerate(places):
        after = len(places) - position - 1
        take = max(len(rest) - after, 0) if field.many else 1
        taken, rest = rest[:take], rest[take:]
        if taken:
            given[field.name] = taken if field.many else taken[0]
    if rest:
        raise UserError(f"step {name!r} has too many args", fix=f"leave out {rest[0]!r}")
    return given


def _shown(name: str, given: Mapping[str, Any]) -> str:
    """A step as a person would have typed it."""
    verb, kind = find_step(name)
    request = verb.type.kinds[kind] if kind else verb.type
    known = {spelt: f for f in fields(request) for spelt in (f.flag.replace("-", "_"), f.name)}
    arguments, options = [], []
    for key, value in given.items():
        field = known.get(key)
        flag = field.flag if field else key
        if isinstance(value, bool):
            options.append(f"--{flag}" if value else f"--no-{flag}")
            continue
        if isinstance(value, dict):
            value = [f"{part}={item}" for part, item in value.items()]
        for item in value if isinstance(value, list) else [value]:
            text = shlex.quote(str(item))
            if field and field.argument:
                arguments.append(text)
            else:
                options.append(f"--{flag} {text}")
    return " ".join(["heldout", name, *arguments, *options])


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
        elif spec.default is not None:
            known[name] = spec.default
        else:
            raise UserError(
                f"run {runfile.name} needs {name}: {spec.help}", fix=f"give --set {name}=VALUE"
            )
        if isinstance(spec.default, list) and not isinstance(known[name], list):
            known[name] = [known[name]]
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


def _expand(value: Any, known: Mapping[str, Any]) -> Any:
    """Fill in ``{variables}``; a text that is one list variable becomes the list."""
    if isinstance(value, list):
        parts = [_expand(item, known) for item in value]
        return [leaf for part in parts for leaf in (part if isinstance(part, list) else [part])]
    if isinstance(value, dict):
        return {key: _expand(item, known) for key, item in value.items()}
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


def _beside(runfile: RunFile, records: Sequence[Any]) -> list[Published]:
    """Ours beside the published value, where both exist."""
    from statistics import linear_regression

    counted = {(r.testset, r.model, r.name): r.value for r in records if isinstance(r, Count)}
    ours = {
        (r.model, r.testset, r.name): r.value  # a rank is another number than its metric
        for r in records
        if r.record == "score" and r.slice == "all"
    }
    found = []
    for entry in runfile.published:
        model, testset = entry.model, entry.testset
        number: int | float
        if entry.slope is not None:
            name, number = "slope of top1", entry.slope
            x, y = (
                {m: share for (m, *about), share in ours.items() if about == [where, "top1"]}
                for where in (entry.baseline, testset)
            )
            common = [m for m in x.keys() & y.keys() if not fnmatchcase(m, entry.exclude)]
            value, model = None, f"{len(common)} of {entry.models} models"
            if len(common) > 1:
                fit = linear_regression([x[m] for m in common], [y[m] for m in common])
                value = round(fit.slope, 3)
            equal = len(common) == entry.models and round(value or 0.0, 2) == number
        elif entry.count:
            name, number = entry.count, entry.value
            value = counted.get((testset, model, name))
            equal = value == number
        else:
            name, number = entry.metric, entry.percent
            share = ours.get((model, testset, name))
            digits = len(str(number).partition(".")[2])
            value = None if share is None else round(100 * share, 3)
            equal = share is not None and f"{100 * share:.{digits}f}" == f"{number:.{digits}f}"
        if value is not None:
            found.append(
                Published(
                    model=model,
                    testset=testset,
                    metric=name,
                    ours=value,
                    published=number,
                    equal=equal,
                )
            )
    return found
