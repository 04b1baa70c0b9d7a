"""The table of verbs: what one request and one function make is a command, a step and a Python call."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from heldout.core.context import Context, Result
from heldout.core.errors import UserError
from heldout.core.files import check_writable
from heldout.core.request import Field, Request, RequestError, fields, make
from heldout.core.workspace import Workspace


class Verb(NamedTuple):
    """A verb: ``request`` and ``function`` as ``module:name`` under heldout.

    ``page`` is a function ``(request, result, context)`` of ``show`` that draws the result, where
    there is one.
    """

    name: str
    group: str
    request: str
    function: str
    page: str = ""

    @property
    def type(self) -> type[Request]:
        """Its request."""
        return _load(self.request)  # type: ignore[no-any-return]

    @property
    def call(self) -> Callable[[Request, Context], Result]:
        """Its function."""
        return _load(self.function)  # type: ignore[no-any-return]

    def run(
        self, request: Request, context: Context, *, spell: Callable[[str], str] = str
    ) -> Result:
        """Do it, and draw the result where that was asked for; errors name fields by ``spell``."""
        check_writable(getattr(request, "out", None), folder=True)
        try:
            result = self.call(request, context)
        except RequestError as error:
            raise error.spelled(spell) from None
        result.notes = context.notes
        if self.page:
            _load(self.page)(request, result, context)
        return result


GROUPS = {
    "evaluate": "Evaluate a classifier",
    "build": "Build a test set",
    "inspect": "Look closer",
    "manage": "Manage a workspace",
}

VERBS = (
    Verb("demo", "evaluate", "cli.runfile:DemoRequest", "cli.runfile:demo"),
    Verb(
        "eval",
        "evaluate",
        "measure.evaluation.requests:EvaluateRequest",
        "measure.evaluation.verbs:evaluate",
        page="show.report:write_evaluation",
    ),
    Verb(
        "predict",
        "evaluate",
        "measure.evaluation.requests:PredictRequest",
        "measure.evaluation.verbs:predict",
    ),
    Verb(
        "score",
        "evaluate",
        "measure.evaluation.requests:ScoreRequest",
        "measure.evaluation.verbs:score",
    ),
    Verb(
        "compare",
        "evaluate",
        "measure.evaluation.requests:CompareRequest",
        "measure.evaluation.verbs:compare",
    ),
    Verb(
        "fit", "evaluate", "measure.evaluation.requests:FitRequest", "measure.evaluation.verbs:fit"
    ),
    Verb("report", "evaluate", "show.requests:ReportRequest", "show.report:report"),
    Verb(
        "collect",
        "build",
        "data.published.requests:CollectRequest",
        "curate.collect.verbs:collect",
    ),
    Verb("cutout", "build", "curate.cutouts.requests:CutoutRequest", "curate.cutouts.verbs:cutout"),
    Verb(
        "annotate",
        "build",
        "curate.zero_shot.requests:AnnotateRequest",
        "curate.zero_shot.verbs:annotate",
    ),
    Verb(
        "dedupe",
        "build",
        "curate.dedupe.requests:DedupeRequest",
        "curate.dedupe.verbs:dedupe",
        page="show.duplicates:draw",
    ),
    Verb(
        "calibrate",
        "build",
        "curate.dedupe.requests:CalibrateRequest",
        "curate.dedupe.calibration:calibrate",
    ),
    Verb("crowd grids", "build", "curate.crowd.requests:GridsRequest", "curate.crowd.verbs:grids"),
    Verb(
        "crowd publish",
        "build",
        "curate.crowd.requests:PublishRequest",
        "curate.crowd.verbs:publish",
    ),
    Verb(
        "crowd answers",
        "build",
        "curate.crowd.requests:AnswersRequest",
        "curate.crowd.verbs:answers",
    ),
    Verb(
        "crowd votes", "inspect", "curate.crowd.requests:VotesRequest", "curate.crowd.verbs:votes"
    ),
    Verb("active run", "build", "curate.active.requests:StudyRequest", "curate.active.verbs:run"),
    Verb(
        "active next", "build", "curate.active.requests:NextRequest", "curate.active.verbs:choose"
    ),
    Verb(
        "build compose",
        "build",
        "curate.compose.requests:ComposeRequest",
        "curate.compose.verbs:build",
    ),
    Verb(
        "build contexts",
        "build",
        "curate.contexts.requests:BuildContextsRequest",
        "curate.contexts.verbs:build",
    ),
    Verb(
        "build domains",
        "build",
        "curate.domains.requests:DomainsRequest",
        "curate.domains.verbs:build_domains",
    ),
    Verb("build hard", "build", "curate.requests:HardRequest", "curate.hard:build_hard"),
    Verb(
        "build replicate",
        "build",
        "curate.replicate.requests:ReplicateRequest",
        "curate.replicate.verbs:build_replicate",
    ),
    Verb(
        "contexts split",
        "build",
        "curate.contexts.requests:SplitRequest",
        "curate.contexts.verbs:split",
    ),
    Verb("ls", "inspect", "models.requests:ListRequest", "models.verbs:list_stored"),
    Verb(
        "doctor", "inspect", "measure.doctor.requests:DoctorRequest", "measure.doctor.verbs:doctor"
    ),
    Verb(
        "mistakes confusions",
        "inspect",
        "measure.mistakes.requests:ConfusionsRequest",
        "measure.mistakes.verbs:confusions",
    ),
    Verb(
        "mistakes shared",
        "inspect",
        "measure.mistakes.requests:SharedRequest",
        "measure.mistakes.verbs:shared",
    ),
    Verb(
        "mistakes diff",
        "inspect",
        "measure.mistakes.requests:MistakeDiffRequest",
        "measure.mistakes.verbs:diff",
        page="show.mistake_diff:draw",
    ),
    Verb(
        "mistakes slices",
        "inspect",
        "measure.mistakes.requests:SlicesRequest",
        "measure.mistakes.verbs:slices",
    ),
    Verb(
        "mistakes cooccurrence",
        "inspect",
        "measure.mistakes.requests:CooccurrenceRequest",
        "measure.mistakes.verbs:cooccurrence",
    ),
    Verb(
        "mistakes propose",
        "inspect",
        "measure.mistakes.requests:ProposeRequest",
        "measure.mistakes.review_verbs:propose",
    ),
    Verb(
        "mistakes queue",
        "inspect",
        "measure.mistakes.requests:QueueRequest",
        "measure.mistakes.review_verbs:queue",
    ),
    Verb(
        "mistakes panel",
        "inspect",
        "measure.mistakes.requests:PanelRequest",
        "measure.mistakes.review_verbs:panel",
    ),
    Verb(
        "mistakes accuracy",
        "inspect",
        "measure.mistakes.requests:AccuracyRequest",
        "measure.mistakes.review_verbs:accuracy",
    ),
    Verb(
        "mistakes summary",
        "inspect",
        "measure.mistakes.requests:SummaryRequest",
        "measure.mistakes.verbs:summary",
    ),
    Verb(
        "contexts graph",
        "inspect",
        "curate.contexts.requests:GraphRequest",
        "curate.contexts.verbs:graph",
        page="show.contexts:write_graphs",
    ),
    Verb(
        "contexts distance",
        "inspect",
        "curate.contexts.requests:DistanceBetweenRequest",
        "curate.contexts.verbs:distance",
    ),
    Verb(
        "contexts score",
        "inspect",
        "curate.contexts.requests:ScoreContextsRequest",
        "curate.contexts.verbs:score",
        page="show.contexts:write_scores",
    ),
    Verb("labels find", "inspect", "data.requests:FindLabelsRequest", "data.verbs:find_labels"),
    Verb(
        "labels match",
        "inspect",
        "curate.contexts.requests:MatchLabelsRequest",
        "curate.contexts.verbs:match_labels",
    ),
    Verb(
        "import testset",
        "manage",
        "data.requests:ImportTestsetRequest",
        "data.import_verbs:import_testset",
    ),
    Verb(
        "import truth",
        "manage",
        "data.requests:ImportTruthRequest",
        "data.import_verbs:import_truth",
    ),
    Verb(
        "import predictions",
        "manage",
        "models.requests:ImportPredictionsRequest",
        "models.verbs:import_predictions",
    ),
    Verb(
        "import judgements",
        "manage",
        "data.requests:ImportJudgementsRequest",
        "data.import_verbs:import_judgements",
    ),
    Verb(
        "export testset",
        "manage",
        "data.requests:ExportTestsetRequest",
        "data.verbs:export_testset",
    ),
    Verb(
        "export judgements",
        "manage",
        "data.requests:ExportJudgementsRequest",
        "data.verbs:export_judgements",
    ),
    Verb("fetch", "manage", "data.requests:FetchRequest", "data.verbs:fetch"),
    Verb("verify", "manage", "data.requests:VerifyRequest", "models.verify:verify"),
    Verb("diff", "manage", "data.requests:DiffRequest", "data.verbs:diff"),
    Verb("cite", "manage", "data.requests:CiteRequest", "data.verbs:cite"),
    Verb("run", "manage", "cli.runfile:RunRequest", "cli.runfile:run"),
    Verb("prune", "manage", "models.requests:PruneRequest", "models.verbs:prune"),
)


@cache
def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"heldout.{module}"), name)


def find(name: str) -> Verb | None:
    """The verb of this name."""
    return next((verb for verb in VERBS if verb.name == name), None)


def request_from(
    verb: Verb, given: dict[str, Any], *places: Any, workspace: Workspace | None = None
) -> tuple[Request, Context]:
    """The request that Python values ask for, and a context that holds the objects among them."""
    context = Context(workspace or Workspace.find())
    names = [field.name for field in order(verb.type)]
    if len(places) > len(names):
        raise UserError(f"{verb.name} takes {len(names)} arguments", fix="name the others")
    values = {**dict(zip(names, places, strict=False)), **given}
    bound = {name: _bound(value, context) for name, value in values.items()}
    return make(verb.type, bound), context


def _bound(value: Any, context: Context) -> Any:
    """A value in plain types; an object is bound and its name given."""
    if value is None or isinstance(value, str | bool | int | float | dict | os.PathLike):
        return value
    if isinstance(value, list | tuple | set):
        return [_bound(item, context) for item in value]
    return context.bind(value)


def order(request: type[Request]) -> list[Field]:
    """Fields as a Python signature has them: arguments, what every kind requires, the rest."""
    kinds = list(request.kinds.values()) or [request]
    unique = {field.name: field for kind in (request, *kinds) for field in fields(kind)}
    required = [{field.name for field in fields(kind) if field.required} for kind in kinds]
    listed = [
        field._replace(required=all(field.name in names for names in required))
        for field in unique.values()
    ]
    return sorted(listed, key=lambda field: (not field.argument, not field.required))


def function(verb: Verb) -> Callable[..., Any]:
    """A verb as a Python function, with its signature and its help.

    An object (a model in memory, a test set) may stand where the command line takes a name. The
    answer is what the verb makes, such as a test set, else its :class:`~heldout.core.context.Result`.
    """

    def made(*places: Any, workspace: Any = None, **given: Any) -> Any:
        request, context = request_from(verb, given, *places, workspace=Workspace.find(workspace))
        result = verb.run(request, context)
        return result if result.value is None else result.value

    place, name_only, empty = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.empty,
    )
    listed = order(verb.type)
    parameters: list[inspect.Parameter] = []
    for field in listed:
        kind = place if field.argument or field.required else name_only
        default = empty if field.required else field.default
        if kind is place and any(p.default is not empty for p in parameters):
            default = field.default  # after one with a default, none without may stand by place
        parameters.append(inspect.Parameter(field.name, kind, default=default))
    parameters.append(inspect.Parameter("workspace", name_only, default=None))
    made.__name__ = made.__qualname__ = python_name(verb)
    made.__doc__ = "\n".join(
        [inspect.cleandoc(verb.type.__doc__ or ""), "", *(f"{f.name}: {f.help}" for f in listed)]
    )
    made.__module__ = "heldout.verbs"
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return made


def python_name(verb: Verb) -> str:
    """What a verb is called in Python, where ``eval`` is another thing."""
    return "evaluate" if verb.name == "eval" else verb.name.replace(" ", "_")
