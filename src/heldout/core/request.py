"""A request: everything that one verb is asked, as one frozen typed value.

A verb is a :class:`Request` and a function ``(request, context) -> Result``. The request is declared
once, and from the declaration come the command line, the step of a run file, the Python call, the
page of the manual and a JSON schema::

    class CiteRequest(Request, frozen=True, kw_only=True):
        \"\"\"Print the citations of a test set and of its parents.\"\"\"

        testset: Annotated[str, argument("The test set.")]
        bibtex: Annotated[bool, option("As BibTeX.")] = False

A field is text, a number, a truth value, a path, a ``Literal``, a tuple of these or a mapping of text
to them; ``X | None = None`` is one that may be absent. Rules that types cannot state belong in
:meth:`Request.check`. A verb with kinds has a request for each kind, and :attr:`Request.tag` names the
field that tells them apart.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta, Struct

from heldout.core.errors import UserError

R = TypeVar("R", bound="Request")


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that one verb is asked; the docstring is its help."""

    tag: ClassVar[str] = ""
    """The field that tells the kinds of a verb apart, where it has kinds."""
    kinds: ClassVar[Mapping[str, type[Request]]] = {}
    """Its requests by kind."""

    @classmethod
    def filled(cls, given: dict[str, Any]) -> dict[str, Any]:
        """The values that were given, over those of a file or preset that they name."""
        return given

    def check(self) -> None:
        """Refuse fields that do not go together: raise :class:`RequestError`."""


class RequestError(UserError):
    """Fields that are wrong or do not go together, each named in braces: ``{train}``."""

    def spelled(self, spell: Callable[[str], str]) -> UserError:
        """The error with every field spelled as the user writes it: a flag, a key, a name."""
        return UserError(_fill(self.message, spell), fix=_fill(self.fix, spell))


def option(
    help: str, short: str = "", *, flag: str = "", rare: bool = False, **limits: Any
) -> Meta:
    """What a field means: its help, and on the command line its flags.

    The flag is the field's name unless ``flag`` says otherwise; a ``rare`` option is listed by
    ``--help-all`` only; ``limits`` are those of :class:`msgspec.Meta`, such as ``ge=1``.
    """
    words = {"short": short, "flag": flag, "rare": rare}
    return Meta(description=help, extra=words, **limits)


def argument(help: str, **limits: Any) -> Meta:
    """What a field means that is a positional argument of the command line."""
    return Meta(description=help, extra={"argument": True}, **limits)


class Field(NamedTuple):
    """One field of a request, as the fronts need it."""

    name: str
    type: Any
    help: str
    flag: str
    short: str
    default: Any
    required: bool
    argument: bool
    rare: bool

    @property
    def many(self) -> bool:
        """Whether it takes several values."""
        return self.base is tuple

    @property
    def mapping(self) -> bool:
        """Whether it takes values by name."""
        return isinstance(self.base, type) and issubclass(self.base, Mapping)

    @property
    def base(self) -> Any:
        """Its type without parameters and without None."""
        return get_origin(self.type) or self.type

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it may have, where they are listed."""
        return get_args(self.type) if self.base is Literal else ()


@cache
def fields(kind: type[Request]) -> tuple[Field, ...]:
    """The fields of a request in the order of their declaration; those of its parents first."""
    found = []
    for info in msgspec.structs.fields(kind):
        plain, meta = _plain_type(info.type)
        extra = (meta.extra or {}) if meta else {}
        factory = info.default_factory
        default = info.default if factory is msgspec.NODEFAULT else factory()
        found.append(
            Field(
                name=info.name,
                type=plain,
                help=(meta.description or "") if meta else "",
                flag=extra.get("flag") or info.name.replace("_", "-"),
                short=extra.get("short", ""),
                default=None if default is msgspec.NODEFAULT else default,
                required=info.required,
                argument=bool(extra.get("argument")),
                rare=bool(extra.get("rare")),
            )
        )
    return tuple(found)


def _plain_type(hint: Any) -> tuple[Any, Meta | None]:
    """A type without its annotation and without None, and the annotation."""
    if get_origin(hint) is Annotated:
        plain, *notes = get_args(hint)
        meta = next((note for note in notes if isinstance(note, Meta)), None)
        return _plain_type(plain)[0], meta
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        if len(members) == 1:
            return _plain_type(members[0])
    return hint, None


def kind_of(base: type[R], values: Mapping[str, Any]) -> type[R]:
    """The request that these values ask for: the base itself, or the one of their kind."""
    if not base.kinds:
        return base
    tag = next(field for field in fields(base) if field.name == base.tag)
    given = values.get(tag.name, values.get(tag.flag, tag.default))
    if given is None:
        raise RequestError(f"{{{tag.name}}} is missing", fix=f"give {_listed(base.kinds)}")
    if not isinstance(given, str) or given not in base.kinds:
        raise RequestError(f"no {tag.name} {given!r}", fix=did_you_mean(str(given), base.kinds))
    return base.kinds[given]  # type: ignore[return-value]


def make(
    base: type[R], values: Mapping[str, Any], *, spell: Callable[[str], str] | None = None
) -> R:
    """A request from plain values by field name or flag; texts are read as what the field is.

    What is unknown, missing or of the wrong type, and what :meth:`Request.check` refuses, is a
    :class:`~heldout.core.errors.UserError` that names the field as ``spell`` does.
    """
    try:
        kind = kind_of(base, values)
        made = _convert(kind, kind.filled(by_field(kind, values, base)))
        made.check()
    except RequestError as error:
        raise error.spelled(spell or str) from None
    return made


def by_field(
    kind: type[Request], values: Mapping[str, Any], base: type[Request] | None = None
) -> dict[str, Any]:
    """Values by the names of fields, however they are spelled; an unknown one is refused."""
    known = fields(kind)
    names = {spelling: f for f in known for spelling in (f.flag.replace("-", "_"), f.name)}
    given: dict[str, Any] = {}
    for key, value in values.items():
        field = names.get(str(key).replace("-", "_"))
        if field is None:
            raise _unknown(str(key), kind, base or kind)
        if field.name in given:
            raise RequestError(f"{{{field.name}}} is given twice", fix="give it once")
        if value is not None:
            given[field.name] = _value(field, value)
    return given


def _convert(kind: type[R], given: Mapping[str, Any]) -> R:
    known = fields(kind)
    for field in known:
        if field.required and field.name not in given:
            raise RequestError(f"{{{field.name}}} is missing", fix=field.help)
    try:
        return msgspec.convert(given, kind, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        path = str(error).rpartition("`$.")[2].rstrip("`")
        name = path.partition("[")[0]
        wanted = next(f for f in known if f.name == name)
        shown = (
            given[name] if not isinstance(given[name], list) else ", ".join(map(str, given[name]))
        )
        raise RequestError(
            f"{{{name}}} is {shown!r}", fix=f"give {_wanted(wanted, str(error))}"
        ) from None


def _value(field: Field, value: Any) -> Any:
    """A value in plain types: paths as text, one value for a field of many as a list of it."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if field.many:
        several = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
        items = list(value) if several else [value]
        return [os.fspath(item) if isinstance(item, os.PathLike) else item for item in items]
    if field.mapping and isinstance(value, str | list | tuple):
        return _by_name(field, [value] if isinstance(value, str) else value)
    if isinstance(value, float) and not math.isfinite(value):
        raise RequestError(f"{{{field.name}}} is {value!r}", fix="give a finite number")
    return value


def _by_name(field: Field, texts: Any) -> dict[str, Any]:
    """``name=value`` texts; a name that is given several times has a list."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = map(str.strip, str(text).partition("="))
        if not equals or not name:
            raise RequestError(f"{{{field.name}}} is {text!r}", fix="write name=value")
        before = found.get(name, [])
        many = [*(before if isinstance(before, list) else [before]), value]
        found[name] = many if name in found else value
    return found


def _decode(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"Expected `{kind.__name__}`")  # msgspec adds which field it is


def _unknown(key: str, kind: type[Request], base: type[Request]) -> RequestError:
    """An unknown field: one of another kind, or a misspelt one."""
    spelt = key.replace("-", "_")
    for name, other in base.kinds.items():
        if other is not kind and any(
            spelt in (f.name, f.flag.replace("-", "_")) for f in fields(other)
        ):
            return RequestError(f"{key!r} is for {base.tag} {name}", fix="leave it out")
    return RequestError(
        f"no option {key!r}", fix=did_you_mean(spelt, [f.name for f in fields(kind)])
    )


def did_you_mean(given: str, known: Any) -> str:
    """What may be meant by a misspelt name, else what there is."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(given, names, 1)
    return f"did you mean {near[0]}?" if near else f"there is {_listed(names) or 'none'}"


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
}


def _wanted(field: Field, problem: str) -> str:
    """What a field takes, in a user's words."""
    if field.choices:
        return f"one of {_listed(field.choices)}"
    inner = get_args(field.type)[-2 if field.many else -1] if get_args(field.type) else field.type
    inner, _ = _plain_type(inner)
    if field.mapping and not isinstance(names := get_args(field.type)[0], type):
        return f"name=value, the name one of {_listed(get_args(names))}"
    word = (
        f"one of {_listed(get_args(inner))}"
        if get_origin(inner) is Literal
        else _WORDS.get(inner, "")
    )
    limit = problem.partition("` ")[2].partition(" - at")[0] if "`" in problem else ""
    if field.mapping:
        return f"name=value, the value {word}" if word else "name=value"
    return f"{word} {limit}".strip() if limit and limit[0] in "<>" else word


def _fill(text: str, spell: Callable[[str], str]) -> str:
    """Fields in braces as the user writes them; braces in a value that is quoted stay."""
    return re.sub(r"(?<!['\"])\{(\w+)\}", lambda field: spell(field[1]), text)


def one_of(request: Request, *names: str) -> None:
    """Exactly one of these fields must be given."""
    given = [name for name in names if _given(request, name)]
    if len(given) != 1:
        listed = " or ".join(f"{{{name}}}" for name in names)
        raise RequestError(
            f"{' and '.join(f'{{{n}}}' for n in given)} exclude each other"
            if given
            else f"{listed} is missing",
            fix=f"give {listed}",
        )


def needs(request: Request, name: str, *others: str) -> None:
    """If the field is given, one of the others must be too."""
    if _given(request, name) and not any(_given(request, other) for other in others):
        listed = " or ".join(f"{{{other}}}" for other in others)
        raise RequestError(
            f"{{{name}}} needs {listed}", fix=f"give {listed}, or leave {{{name}}} out"
        )


def excludes(request: Request, name: str, *others: str) -> None:
    """If the field is given, none of the others may be."""
    for other in others:
        if _given(request, name) and _given(request, other):
            raise RequestError(
                f"{{{name}}} and {{{other}}} exclude each other", fix="give one of them"
            )


def unused(request: Request, mode: str, *names: str) -> None:
    """Refuse fields that the chosen mode does not use; ``mode`` says which that is."""
    for name in names:
        if _given(request, name):
            raise RequestError(f"{{{name}}} has no use with {mode}", fix="leave it out")


def _given(request: Request, name: str) -> bool:
    default = next(field.default for field in fields(type(request)) if field.name == name)
    return bool(getattr(request, name) != default)


def given(request: Request) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    return {
        f.name: getattr(request, f.name) for f in fields(type(request)) if _given(request, f.name)
    }


def to_plain(request: Request) -> dict[str, Any]:
    """The request as JSON and TOML values, absent fields left out."""
    plain = msgspec.to_builtins(request, enc_hook=os.fspath)
    return {name: value for name, value in plain.items() if value is not None}


def schema(kind: type[Request]) -> dict[str, Any]:
    """The JSON schema of a request; of a verb with kinds, one for each of them."""
    each = [
        msgspec.json.schema(one, schema_hook=_path_schema)
        for one in dict.fromkeys(kind.kinds.values() if kind.kinds else [kind])
    ]
    found: dict[str, Any] = each[0] if len(each) == 1 else {"oneOf": each}
    plain: dict[str, Any] = msgspec.to_builtins(found, enc_hook=os.fspath)  # paths as defaults
    return plain


def _path_schema(kind: type) -> dict[str, Any]:
    return {"type": "string", "format": "path"}


# Fields that verbs of several rooms share: one flag, one meaning.

Testset = Annotated[str, option("Test set: name, alias, path, or compose:FILE.toml.", "-t")]
Testsets = Annotated[
    tuple[str, ...],
    option("Test set: name, alias, path, or compose:FILE.toml; repeatable.", "-t", flag="testset"),
]
StoredModels = Annotated[
    tuple[str, ...],
    option("Model; name or glob of stored ones; repeatable; all by default.", "-m", flag="model"),
]
Exclude = Annotated[
    tuple[str, ...], option("Leave out models that match this glob; repeatable.", rare=True)
]
Truth = Annotated[
    str,
    option("Truth to judge by; the set's default otherwise, for reviews its multi-label one."),
]
Truths = Annotated[
    tuple[str, ...],
    option("Truth to judge by; one of the set, or a file of one; repeatable.", flag="truth"),
]
LabelMapText = Annotated[
    str,
    option(
        "How other label spaces are judged: subset:restricted, subset:full, the same with hierarchy "
        "(classes under the set's in WordNet), a built-in such as imagenet-a:restricted, or a CSV/JSON "
        "file such as map.csv:full."
    ),
]
Classes = Annotated[str, option("Label space: a built-in name, a JSON file, or a class_info.json.")]
OnlyClasses = Annotated[
    tuple[str, ...],
    option("This class only; repeatable; all by default.", flag="only-class"),
]
Seed = Annotated[int, option("Seed of everything that is drawn.", ge=0)]
Level = Annotated[float, option("Level of intervals.", gt=0, lt=1, rare=True)]
Replicates = Annotated[int, option("Bootstrap replicates.", ge=2, rare=True)]
Out = Annotated[Path, option("Where to write.", "-o")]
Name = Annotated[str, option("Its name; from what it is made of by default.")]
Replace = Annotated[bool, option("Replace something different of this name.")]
Images = Annotated[str, option("Folder of the image files, if not the set's own.")]
Workers = Annotated[int, option("Worker threads; all cores by default.", rare=True, ge=1)]
Shard = Annotated[
    str, option("Do only share i of n of the images: i/n, counted from 1.", rare=True)
]
Plan = Annotated[bool, option("Say what would be done, and stop.")]
Limit = Annotated[
    int,
    option("Only a fixed sample of this many images; smaller ones are parts of larger.", ge=1),
]
Top = Annotated[int, option("Keep at most this many, best first.", ge=1)]
Order = Annotated[
    str,
    option(
        "How the rows of an array are ordered: as the test set's images (testset), by file name (name), "
        "by class and then file name (class), or as in a file of image ids."
    ),
]
ModelArgs = Annotated[
    Mapping[str, Any],
    option("Argument of the models: key=value, value as JSON; repeatable.", rare=True),
]
EncoderName = Annotated[
    str,
    option(
        "Image-text model: conse, conse:lite1, open_clip:ARCH/TAG or file.py:object (it is run).",
        "-e",
    ),
]
Domain = Annotated[str, option("Column of domains.", "-d")]
ClassColumn = Annotated[str, option("Column of classes, in place of a truth.")]
Metrics = Annotated[
    tuple[str, ...],
    option(
        "Metric, such as top1, top5, mean_per_class, mla or real; repeatable; fits the truth by default.",
        flag="metric",
    ),
]
Cluster = Annotated[
    str,
    option(
        "Column whose images belong together, such as object: intervals are clustered by it. The "
        "test set's own by default; none for no clusters."
    ),
]
AbsentClasses = Annotated[
    Literal["error", "skip"],
    option("Classes without images, where an average is over classes.", rare=True),
]
MinimumN = Annotated[
    int, option("Fewest images of a slice that may be called the worst.", ge=2, rare=True)
]
Wrong = Annotated[
    int, option("Images that at least this many models miss; all of them by default.", ge=1)
]
Rule = Annotated[
    Literal["majority", "plurality", "unanimous", "threshold", "dawid-skene"],
    option("How reviewers' answers become one; unclear where the rule does not decide."),
]
Share = Annotated[
    float, option("Share of votes, for the rules threshold and dawid-skene.", gt=0, le=1)
]
People = Annotated[int, option("People who must have judged a prediction to settle it.", ge=1)]
IdColumn = Annotated[str, option("Column with image ids.", flag="id-column")]
KeepColumns = Annotated[
    tuple[str, ...],
    option("Column that the set keeps; repeatable.", flag="keep-column", rare=True),
]
Separators = Annotated[
    Mapping[str, str],
    option(
        "COLUMN=TEXT: what stands between several values in a cell, such as context=|; repeatable.",
        flag="separator",
    ),
]
Folds = Annotated[int, option("Folds of the cross-validation.", ge=2)]
