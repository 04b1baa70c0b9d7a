"""Amazon Mechanical Turk: grids as HITs, in its sandbox unless going live is asked for.

Credentials are boto3's own (``AWS_ACCESS_KEY_ID``, a profile, a role), never an option. A HIT's
``UniqueRequestToken`` and ``RequesterAnnotation`` are the grid's name: the first keeps MTurk from
creating a grid twice within a day, the second says for ever which grid a HIT is. No HIT is deleted.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.curate.crowd.backend import Assignment, GridTask, PublishedTask, Secrets
from heldout.curate.crowd.page import grid_page
from heldout.data.judgements.judgement import utc_time

SANDBOX = "https://mturk-requester-sandbox.us-east-1.amazonaws.com"
LIVE = "https://mturk-requester.us-east-1.amazonaws.com"
_ENDPOINT = "AWS_ENDPOINT_URL_MTURK"
_FORMS = {
    SANDBOX: "https://workersandbox.mturk.com/mturk/externalSubmit",
    LIVE: "https://www.mturk.com/mturk/externalSubmit",
}
FEE, FEE_OF_MANY, MANY, LEAST_FEE = 0.2, 0.2, 10, 0.01
"""MTurk's fees as published: 20 % of the reward, 20 % more from 10 assignments per HIT on, at least a
cent per assignment."""
LONGEST_QUESTION = 65_535
_QUESTION = (
    '<HTMLQuestion xmlns="http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/'
    '2011-11-11/HTMLQuestion.xsd"><HTMLContent><![CDATA[{}]]></HTMLContent>'
    "<FrameHeight>800</FrameHeight></HTMLQuestion>"
)
_TOLD = {
    "Title": "Select the images that show an object",
    "Description": "Look at a grid of images and select those that show an object of a given type.",
    "Keywords": "images, photos, select, classification",
}
_QUALIFICATIONS = {
    "approved": "000000000000000000L0",
    "hits": "00000000000000000040",
    "country": "00000000000000000071",
}
"""Qualifications that every requester has: percentage and number of approved HITs, and country."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What people are paid, and when; times in seconds. The defaults are ImageNetV2's."""

    reward: float = 0.10
    duration: int = 600
    lifetime: int = 604_800
    approval: int = 259_200
    qualifications: Mapping[str, str] = field(default_factory=dict)
    title: str = "Select the images that show an object"
    description: str = (
        "Look at a grid of images and select those that show an object of a given type."
    )
    keywords: str = "images, photos, select, classification"


def fee_share(assignments: int) -> float:
    """MTurk's fee as a share of the reward.

    >>> fee_share(9), fee_share(10)
    (0.2, 0.4)
    """
    return FEE + (FEE_OF_MANY if assignments >= MANY else 0.0)


def cost(grids: int, assignments: int, reward: float, fee: float | None = None) -> float:
    """The cost of grids in dollars, fees included.

    >>> round(cost(7_267, 10, 0.10), 2)
    10173.8
    >>> round(cost(1, 1, 0.01), 2)
    0.02
    """
    share = fee_share(assignments) if fee is None else fee
    return grids * assignments * (reward + max(reward * share, LEAST_FEE if share else 0.0))


class MTurkCrowd:
    """MTurk behind boto3.

    ``images``  the public address below which images are, as ``TOKEN.jpg``
    ``live``    ask people who are paid. Otherwise it is the sandbox, or the service at
                ``AWS_ENDPOINT_URL_MTURK``, if there is one that speaks MTurk's protocol
    """

    def __init__(
        self,
        secrets: Secrets,
        *,
        images: str = "",
        terms: Terms | None = None,
        live: bool = False,
    ) -> None:
        boto3 = require("boto3", extra="mturk", purpose="asking people on MTurk")
        from botocore.config import Config

        endpoint = LIVE if live else os.environ.get(_ENDPOINT, SANDBOX).rstrip("/")
        if endpoint == LIVE and not live:
            raise UserError(f"{_ENDPOINT} is the service that pays people", fix="give --live LIVE")
        self._secrets, self._images, self._terms = secrets, images.rstrip("/"), terms or Terms()
        self._form = _FORMS.get(endpoint, f"{endpoint}/mturk/externalSubmit")
        # It answers a few calls per second; botocore waits and tries again.
        retries = Config(retries={"mode": "standard", "max_attempts": 10})
        self._client = boto3.session.Session().client(
            "mturk", region_name="us-east-1", endpoint_url=endpoint, config=retries
        )

    def create(self, task: GridTask) -> str:
        """Create a HIT, or find the one that an interrupted run has created."""
        page = grid_page(
            task, [f"{self._images}/{token}.jpg" for token in task.tokens], action=self._form
        )
        question = _QUESTION.format(page)
        if len(question.encode()) > LONGEST_QUESTION or "]]>" in page:
            raise UserError(
                f"the page of grid {task.grid} is too long for MTurk",
                fix="show fewer images, or use a shorter address of images",
            )
        terms = self._terms
        made = self._ask(
            "create_hit",
            unless="HitAlreadyExists",
            MaxAssignments=task.assignments,
            AutoApprovalDelayInSeconds=terms.approval,
            LifetimeInSeconds=terms.lifetime,
            AssignmentDurationInSeconds=terms.duration,
            Reward=f"{terms.reward:.2f}",
            **_TOLD,
            Question=question,
            QualificationRequirements=_requirements(terms.qualifications),
            RequesterAnnotation=task.grid,
            UniqueRequestToken=task.grid,
        )
        known = made["HIT"]["HITId"] if made else None
        for listed in () if made else self.tasks():
            if listed.grid == task.grid:
                known = listed.task
        if known is None:
            raise UserError(
                f"MTurk has grid {task.grid} already, and does not list it yet",
                fix="run the same command again in a minute",
            )
        return str(known)

    def tasks(self) -> Iterator[PublishedTask]:
        """The HITs of the account whose annotation is the name of a grid; others are not ours."""
        for page in self._pages("list_hits"):
            for hit in page["HITs"]:
                grid = hit.get("RequesterAnnotation", "")
                if _is_grid(grid):
                    wanted = int(hit["MaxAssignments"])
                    yield PublishedTask(grid, hit["HITId"], utc_time(hit["CreationTime"]), wanted)

    def answers(self, task: str) -> Iterator[Assignment]:
        """All assignments of a HIT; one that MTurk no longer has, has none."""
        pages = self._pages("list_assignments_for_hit", unless="HITDoesNotExist", HITId=task)
        for page in pages:
            for one in page["Assignments"]:
                yield Assignment(
                    assignment=one["AssignmentId"],
                    who=self._secrets.who(one["WorkerId"]),
                    status=one["AssignmentStatus"],
                    accepted=utc_time(one["AcceptTime"]),
                    submitted=utc_time(one["SubmitTime"]),
                    answer=form_fields(one.get("Answer", "")),
                )

    def settle(self, assignment: str, *, rejected: str | None) -> None:
        """Approve or reject; what was settled before is left alone."""
        name, feedback = "approve_assignment", {}
        if rejected is not None:
            name, feedback = "reject_assignment", {"RequesterFeedback": rejected}
        self._ask(name, unless="InvalidAssignmentState", AssignmentId=assignment, **feedback)

    def _pages(
        self, operation: str, unless: str | None = None, **arguments: Any
    ) -> Iterator[dict[str, Any]]:
        token: dict[str, str] | None = {}
        while token is not None:
            page = self._ask(operation, unless=unless, MaxResults=100, **arguments, **token)
            if page is None:
                return
            yield page
            token = {"NextToken": page["NextToken"]} if page.get("NextToken") else None

    def _ask(
        self, operation: str, *, unless: str | None, **arguments: Any
    ) -> dict[str, Any] | None:
        """MTurk's answer; None for the error whose code is ``unless``."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
        except ClientError as error:
            code = str(error.response.get("TurkErrorCode", ""))
            if unless is not None and code.removeprefix("AWS.MechanicalTurk.") == unless:
                return None
            said = error.response.get("Error", {})
            what = said.get("Message") or code or said.get("Code") or "no reason"
            raise UserError(
                f"MTurk refused {operation}: {what}", fix="correct it, and run it again"
            ) from None
        except BotoCoreError as error:
            raise UserError(
                f"MTurk cannot be asked: {error}",
                fix="check credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) and the network",
            ) from None
        return answer


def form_fields(xml: str) -> dict[str, str]:
    """The fields of an answer; several values of one are joined with ``|``, as MTurk does.

    >>> form_fields("<A><Answer><QuestionIdentifier>grid</QuestionIdentifier>"
    ...             "<FreeText>g</FreeText></Answer></A>")
    {'grid': 'g'}
    """
    try:
        if "<!" in xml:  # a form has no declarations, and entities may grow without end
            raise ValueError(xml)
        answers = ElementTree.fromstring(xml).iterfind("{*}Answer")
        pairs = [
            (one.findtext("{*}QuestionIdentifier"), one.findtext("{*}FreeText")) for one in answers
        ]
    except (ElementTree.ParseError, ValueError):
        return {"unreadable": xml}
    found: dict[str, str] = {}
    for name, text in pairs:
        if name:
            found[name] = f"{found[name]}|{text or ''}" if name in found else text or ""
    return found


def _requirements(wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    """Qualifications as MTurk has them: percentage and number of approved HITs, countries."""
    found: list[dict[str, Any]] = []
    for name, value in wanted.items():
        least: dict[str, Any] = {"Comparator": "GreaterThanOrEqualTo"}
        if name == "country":
            countries = [{"Country": each.strip()} for each in value.split(",")]
            least = {"Comparator": "In", "LocaleValues": countries}
        else:
            least["IntegerValues"] = [int(value)]
        found.append({"QualificationTypeId": _QUALIFICATIONS[name], **least})
    return found


def _is_grid(name: str) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False
