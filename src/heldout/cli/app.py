"""The command: every verb from its request, errors turned into one line and an exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from heldout.cli.render import show_result
from heldout.core.context import Context
from heldout.core.errors import EXIT_DONE, EXIT_FAULT, EXIT_USER, UserError
from heldout.core.files import check_writable
from heldout.core.request import Field, Request, did_you_mean, fields, make
from heldout.core.workspace import Workspace
from heldout.front import GROUPS, VERBS, Verb

_PLACES = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR})
_PLACES |= {errno.ENAMETOOLONG, errno.ELOOP}
_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TEMPORARY = re.compile(r"\.tmp-(?:hold|[0-9a-f]{32})-(?:old-)?")

FRONT = (
    click.Option(["--workspace", "-w"], help="Workspace folder; the current folder by default."),
    click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON array of records."),
    click.Option(["--save"], help="Also write the records to this JSON file."),
    click.Option(["--full"], is_flag=True, help="Print every table whole."),
)
"""The options of every verb: they belong to the front, not to the requests."""


def flag(field: Field) -> str:
    """How the command line spells a field."""
    return field.name.upper() if field.argument else f"--{field.flag}"


def parameter(field: Field) -> click.Parameter:
    """The parameter of the command line for a field; values stay text, the request reads them."""
    if field.argument:
        count = -1 if field.many else 1
        name = field.name.upper() + ("..." if field.many else "")
        metavar = name if field.required else f"[{name}]"
        return click.Argument([field.name], nargs=count, required=False, metavar=metavar)
    names = [f"--{field.flag}", *([field.short] if field.short else []), field.name]
    if field.base is bool:
        both = f"--{field.flag}/--no-{field.flag}"
        names[0] = both if field.default is not False else names[0]
        return click.Option(names, is_flag=True, default=None, help=field.help)
    choices = f"[{'|'.join(field.choices)}]" if field.choices else None
    return click.Option(
        names,
        multiple=field.many or field.mapping,
        metavar=choices or _METAVARS.get(field.base, "TEXT"),
        help=_help(field),
    )


_METAVARS = {int: "N", float: "X", Path: "PATH", tuple: "TEXT"}


def _help(field: Field) -> str:
    plain = field.default if isinstance(field.default, str | int | float) else None
    shown = "" if plain in (None, "") or isinstance(plain, bool) else f"  [default: {plain}]"
    return field.help + shown


class VerbCommand(click.Command):
    """One verb, or one kind of a verb."""

    def __init__(self, name: str, verb: Verb, kind: str = "") -> None:
        self.verb, self.kind = verb, kind
        base = verb.type
        self.request = base.kinds[kind] if kind else base
        shown = [f for f in fields(self.request) if not (kind and f.name == base.tag)]
        shown.sort(key=lambda field: (not field.argument, not field.required, not field.short))
        super().__init__(
            name,
            params=[*map(parameter, shown), *FRONT],
            help=self.request.__doc__,
            callback=self.call,
            add_help_option=True,
            context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
        )
        self.params.append(
            click.Option(
                ["--help-all"], is_flag=True, expose_value=False, is_eager=True,
                callback=_help_all, help="Show every option.",
            )
        )  # fmt: skip
        self.shown = shown

    def call(self, **given: Any) -> int:
        """Make the request, do the verb, print what it gave."""
        front = {name: given.pop(name) for name in ("workspace", "as_json", "save", "full")}
        check_writable(Path(front["save"]) if front["save"] else None)
        request = self.made(given)
        context = Context(Workspace.find(front["workspace"]), talk=True)
        result = self.verb.run(request, context, spell=self._spell)
        show_result(result, **{k: front[k] for k in ("as_json", "save", "full")})
        return result.code

    def made(self, given: Mapping[str, Any]) -> Request:
        """The request that parsed values ask for."""
        return make(self.verb.type, self._values(given), spell=self._spell)

    def _values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for field in self.shown:
            value = given[field.name]
            if value is None or value == ():
                continue
            values[field.name] = list(value) if field.many or field.mapping else value
        if self.kind:
            values[self.verb.type.tag] = self.kind
        return values

    def _spell(self, name: str) -> str:
        return next((flag(f) for f in fields(self.request) if f.name == name), name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; a flag of before, or one that is an argument here, is answered as such."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if new := now_named(error.option_name, self.request):
                raise UserError(
                    f"no option {error.option_name}", fix=f"it is --{new.replace('_', '-')} now"
                ) from None
            models = next((f for f in self.shown if f.argument and f.name == "models"), None)
            if models is None or error.option_name not in ("-m", "--model"):
                raise
            raise UserError(
                f"{self.name} takes models without a flag", fix=f"write them as {flag(models)}"
            ) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Arguments, then options; those that are rare only where all are asked for."""
        arguments = [(f.name.upper(), f.help) for f in self.shown if f.argument]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        whole = ctx.meta.get("help-all", False)
        rare = {f.name for f in self.shown if f.rare} if not whole else set()
        options = [
            record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and param.name not in rare
            and not (whole and param.name == "help_all")
            and (record := param.get_help_record(ctx)) is not None
        ]  # fmt: skip
        with formatter.section("Options"):
            formatter.write_dl(options)
        if rare:
            more = "1 more option" if len(rare) == 1 else f"{len(rare)} more options"
            formatter.write_text(f"{more}: --help-all")


def _help_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["help-all"] = True
        click.echo(ctx.get_help())
        ctx.exit()


class Group(click.Group):
    """Verbs whose names begin with the same words, or the kinds of one verb; made when asked for."""

    def __init__(self, words: tuple[str, ...] = ()) -> None:
        self.words = words
        self.kinds_of = next((v for v in VERBS if v.name == " ".join(words)), None)
        help = self.kinds_of.type.__doc__ if self.kinds_of else _ABOUT.get(" ".join(words))
        super().__init__(
            name=words[-1] if words else "heldout",
            help=help,
            no_args_is_help=True,
            context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
        )
        if not words:
            version = click.Option(
                ["--version"], is_flag=True, expose_value=False, is_eager=True,
                callback=_version, help="Print the version.",
            )  # fmt: skip
            self.params.append(version)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The next words, in the order of the table."""
        if self.kinds_of:
            return list(self.kinds_of.type.kinds)
        depth = len(self.words)
        names = [tuple(verb.name.split()) for verb in VERBS]
        return list(
            dict.fromkeys(n[depth] for n in names if n[:depth] == self.words and len(n) > depth)
        )

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The verb or group of this name."""
        if name not in self.list_commands(ctx):
            return None
        if self.kinds_of:
            return VerbCommand(name, self.kinds_of, name)
        words = (*self.words, name)
        verb = next((v for v in VERBS if v.name == " ".join(words)), None)
        if verb is None:
            return Group(words)
        tag = next((f for f in fields(verb.type) if f.name == verb.type.tag), None)
        return Group(words) if tag is not None and tag.argument else VerbCommand(name, verb)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but one line that says what may be meant."""
        name = args[0]
        if self.get_command(ctx, name) is None:
            verb = " ".join((*self.words, name))
            what = f"no {self.kinds_of.type.tag} {name!r}" if self.kinds_of else f"no verb {verb!r}"
            raise UserError(
                what, fix=RETIRED.get(verb) or did_you_mean(name, self.list_commands(ctx))
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Verbs by purpose; within a group, each verb or kind with its first line."""
        if self.words:
            rows = [(name, self._line(ctx, name)) for name in self.list_commands(ctx)]
            with formatter.section(
                self.kinds_of.type.tag.capitalize() + "s" if self.kinds_of else "Verbs"
            ):
                formatter.write_dl(rows)
            return
        for group, title in GROUPS.items():
            rows = [(verb.name, first_line(verb.type)) for verb in VERBS if verb.group == group]
            with formatter.section(title):
                formatter.write_dl(rows)

    def _line(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return ((command and command.help) or "").partition("\n")[0]


def parse(arguments: Sequence[str]) -> tuple[Verb, Request]:
    """The verb and the request of a command line; nothing is done."""
    command: click.Command = Group()
    rest = list(arguments)
    context = click.Context(command, info_name="heldout")
    try:
        while isinstance(command, Group):
            _, found, rest = command.resolve_command(context, rest)
            command = found or command
            context = click.Context(command, parent=context, info_name=command.name)
        command.parse_args(context, rest)
    except click.UsageError as error:
        raise UserError(error.format_message()) from None
    if not isinstance(command, VerbCommand):
        raise UserError("no verb", fix="heldout --help lists them")
    front = ("workspace", "as_json", "save", "full")
    return command.verb, command.made({k: v for k, v in context.params.items() if k not in front})


def first_line(request: type[Request]) -> str:
    """What a verb does, in one line."""
    return (request.__doc__ or "").partition("\n")[0]


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from heldout import __version__

        click.echo(f"heldout {__version__}")
        ctx.exit()


_ABOUT = {
    "": "Builds new test sets for image classifiers, and shows where and why a classifier breaks on them.",
    "active": "Choose images to label, across domains.",
    "build": "Make a test set.",
    "contexts": "Images in context: the graph over subsets, distances, splits.",
    "export": "Write test sets and judgements for other programs.",
    "import": "Bring in test sets, truths, predictions and judgements.",
    "labels": "Classes and label spaces.",
    "mistakes": "What models get wrong, and how bad it is.",
}

RETIRED: dict[str, str] = {
    "import clip-geoyfcc": "it is now heldout import testset INDICES CLASSES --format clip-geoyfcc",
    "labels similar": "it is now heldout labels find CLASS --similar N",
    "audit": "it is now heldout verify SET --audit",
    "contexts conflicts": "it is a Python function: docs/splits.md, training conflicts",
    "contexts folders": "it is now heldout contexts split folders SET -o FOLDER",
    "mistakes consensus": "it is now heldout mistakes shared",
    "mistakes overlap": "it is now heldout mistakes shared",
    "mistakes quality": "heldout mistakes propose says how far its proposals agree with people",
    "reproduce": "it is now heldout run NAME --set data=FOLDER",
}
"""Verbs that are gone, and what to write instead."""

_OUT = dict.fromkeys(("to", "output", "report", "html", "svg", "png", "page", "export"), "out")
_TABLE = dict.fromkeys(("ids", "id"), "id_column") | {
    "class": "class_column",
    "keep": "keep_column",
}
RENAMED: dict[str, str] = {
    **_OUT,
    **_TABLE,
    "top_k": "top",
    "limit": "top",
    "sample": "limit",
    "mistakes": "mistake_file",
    "at_least": "wrong",
    "without": "without_truth",
    "cap": "class_cap",
    "clusters": "cluster_column",
    "similarity": "similarity_column",
    "split": "split_by",
    "cooccurrence": "general",
    "only": "only_class",
    "model": "name",
    "figure": "figures",
    "test_size": "sizes",
    "train_size": "sizes",
    "lossless": "format",
    "reference": "line",
}
"""Options that have another name now, for those who write the old one."""


def now_named(key: str, request: type[Request]) -> str:
    """What an option of before is now, if this request has it; else nothing."""
    new = RENAMED.get(key.lstrip("-").replace("-", "_"), "")
    names = {spelling for f in fields(request) for spelling in (f.name, f.flag.replace("-", "_"))}
    return new if new in names else ""


def invoke(arguments: Sequence[str]) -> int:
    """Run the command with these arguments and return its exit code."""
    # Pillow warns of damaged images; what is wrong with them is recorded as their failure.
    warnings.filterwarnings("ignore", module="PIL")
    try:
        code = Group().main(list(arguments), prog_name="heldout", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        sys.stderr.write(f"error: {error.line}\n")
        return EXIT_USER
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return EXIT_USER
    except click.UsageError as error:
        sys.stderr.write(f"error: {error.format_message().rstrip('.')}\n")
        return EXIT_USER
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("stopped; the same command again goes on from here\n")
        return EXIT_FAULT
    except (BrokenPipeError, SystemExit):
        # The reader (head, less) has closed the pipe; that is all for which click exits by itself
        # outside its standalone mode.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except OSError as error:
        line = _place_line(error)
        if line is None:
            raise
        sys.stderr.write(f"error: {line}\n")
        return EXIT_USER
    return int(code or EXIT_DONE)


def _file_for_a_folder(error: OSError) -> bool:
    """Whether a folder could not be made because a file has its name."""
    alone = error.errno == errno.EEXIST and error.filename2 is None
    return alone and Path(os.fsdecode(error.filename)).is_file()


def _place_line(error: OSError) -> str | None:
    """What the user can fix about a place on disk, on one line; None for any other error."""
    # NumPy says how much of an array it has written, and no number.
    if error.errno in _ROOM or (error.errno is None and " requested and " in str(error)):
        fix = "make room, or use another --workspace; the same command again goes on from here"
    elif error.filename is not None and (error.errno in _PLACES or _file_for_a_folder(error)):
        fix = "check the path and its permissions"
    else:
        return None
    # Files are written beside where they go and then renamed: the user knows the second name.
    path = error.filename if error.filename2 is None else error.filename2
    where = "" if path is None else f"{_TEMPORARY.sub('', os.fsdecode(path))}: "
    return f"{where}{error.strerror or error}: {fix}"
