"""A loopback server that speaks MTurk's protocol (JSON 1.1) as its documentation states it, faults included.

It checks what boto3 sends against MTurk's limits, keeps HITs and assignments, and serves the images of
a folder under ``/images/``.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_TARGET = "MTurkRequesterServiceV20170117."
_SCHEMA = (
    "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2011-11-11/HTMLQuestion.xsd"
)
_ANSWERS = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2005-10-01/QuestionFormAnswers.xsd"


class Refusal(Exception):
    """A typed error of the service."""

    def __init__(self, kind: str, code: str, message: str, status: int = 400) -> None:
        self.status = status
        self.body = {"__type": kind, "Message": message}
        if code:
            self.body["TurkErrorCode"] = f"AWS.MechanicalTurk.{code}"
        super().__init__(message)


class Service:
    """The state of the service, and its faults.

    ``throttled``  every so many calls one is refused; ``lost`` so many answers to CreateHIT are lost after
                   the HIT was made; ``page`` items of a page at most
    """

    def __init__(self, images: Path, *, throttled: int = 0, lost: int = 0, page: int = 3) -> None:
        self.images, self.throttled, self.lost, self.page = images, throttled, lost, page
        self.hits: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, str] = {}
        self.assignments: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.lock = threading.Lock()
        self.submitted = 0
        self.refused = ""
        self.url = ""

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            self.calls.append(operation)
            if self.refused:
                raise Refusal("RequestError", "AccountSuspended", self.refused)
            if self.throttled and len(self.calls) % self.throttled == 0:
                raise Refusal("ThrottlingException", "", "Rate exceeded")
            return dict(getattr(self, operation)(**given))

    def CreateHIT(self, **given: Any) -> dict[str, Any]:
        token = given["UniqueRequestToken"]
        if token in self.tokens:
            raise Refusal(
                "RequestError",
                "HitAlreadyExists",
                f"There is already a HIT with this token: {self.tokens[token]}",
            )
        if not re.fullmatch(r"[0-9]+(\.[0-9]{0,2})?", given["Reward"]) or len(token) > 64:
            raise Refusal("RequestError", "ParameterValidationError", "reward or token")
        if not 1 <= given["MaxAssignments"] <= 1_000_000_000 or len(given["Question"]) > 65_535:
            raise Refusal("RequestError", "ParameterValidationError", "assignments or question")
        if ElementTree.fromstring(given["Question"]).tag != f"{{{_SCHEMA}}}HTMLQuestion":
            raise Refusal("RequestError", "XHTMLParseError", "not an HTMLQuestion")
        name = f"3HIT{len(self.hits):026}"
        self.tokens[token] = name
        kept = {k: v for k, v in given.items() if k not in ("UniqueRequestToken",)}
        self.hits[name] = kept | {
            "HITId": name,
            "HITTypeId": f"3TYPE{0:025}",
            "CreationTime": 1.6e9 + len(self.hits),
            "HITStatus": "Assignable",
        }
        if self.lost:
            self.lost -= 1
            raise Refusal("ServiceFault", "", "try again", 500)
        return {"HIT": self._hit(name)}

    def ListHITs(self, **given: Any) -> dict[str, Any]:
        names, more = self._paged(sorted(self.hits, reverse=True), given)
        return {"HITs": [self._hit(name) for name in names], "NumResults": len(names), **more}

    def ListAssignmentsForHIT(self, HITId: str, **given: Any) -> dict[str, Any]:
        if HITId not in self.hits:
            raise Refusal("RequestError", "HITDoesNotExist", f"HIT {HITId} does not exist")
        found = [one for one in self.assignments.values() if one["HITId"] == HITId]
        items, more = self._paged(found, given)
        return {"Assignments": items, "NumResults": len(items), **more}

    def ApproveAssignment(self, AssignmentId: str, **given: Any) -> dict[str, Any]:
        return self._settle(AssignmentId, "Approved")

    def RejectAssignment(self, AssignmentId: str, RequesterFeedback: str) -> dict[str, Any]:
        return self._settle(AssignmentId, "Rejected")

    def _settle(self, name: str, status: str) -> dict[str, Any]:
        if self.assignments[name]["AssignmentStatus"] != "Submitted":
            raise Refusal("RequestError", "InvalidAssignmentState", "already settled")
        self.assignments[name]["AssignmentStatus"] = status
        return {}

    def _hit(self, name: str) -> dict[str, Any]:
        mine = [one for one in self.assignments.values() if one["HITId"] == name]
        left = self.hits[name]["MaxAssignments"] - len(mine)
        done = sum(one["AssignmentStatus"] != "Submitted" for one in mine)
        return self.hits[name] | {
            "NumberOfAssignmentsAvailable": left,
            "NumberOfAssignmentsPending": 0,
            "NumberOfAssignmentsCompleted": done,
        }

    def _paged(self, found: list[Any], given: dict[str, Any]) -> tuple[list[Any], dict[str, str]]:
        start = int(given.get("NextToken", "0"))
        stop = start + min(self.page, given["MaxResults"])
        return found[start:stop], {"NextToken": str(stop)} if stop < len(found) else {}

    # what a worker does

    def page_of(self, hit: str) -> Form:
        """The page that a worker sees."""
        html = ElementTree.fromstring(self.hits[hit]["Question"]).findtext("{*}HTMLContent")
        return Form(str(html))

    def submit(self, hit: str, worker: str, fields: dict[str, str]) -> str:
        """Submit the form of a HIT, as the service stores it."""
        self.submitted += 1
        name = f"3ASSIGNMENT{self.submitted:019}"
        answers = "".join(
            f"<Answer><QuestionIdentifier>{escape(k)}</QuestionIdentifier>"
            f"<FreeText>{escape(v)}</FreeText></Answer>"
            for k, v in fields.items()
        )
        self.assignments[name] = {
            "AssignmentId": name,
            "WorkerId": worker,
            "HITId": hit,
            "AssignmentStatus": "Submitted",
            "AcceptTime": 1.6e9 + 100 + len(self.assignments),
            "SubmitTime": 1.6e9 + 190.5 + len(self.assignments),
            "AutoApprovalTime": 1.7e9,
            "Answer": '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<QuestionFormAnswers xmlns="{_ANSWERS}">{answers}</QuestionFormAnswers>',
        }
        return name


class Form(HTMLParser):
    """The form of a page: where it is sent, hidden fields, and checkboxes with their images."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.action, self.links = "", []
        self.hidden: dict[str, str] = {}
        self.boxes: list[str] = []
        self.images: list[str] = []
        self.text = html
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = found["action"]
        elif tag == "input" and found["type"] == "hidden":
            self.hidden[found["name"]] = found["value"]
        elif tag == "input":
            assert found["name"] == "selected"
            self.boxes.append(found["value"])
        elif tag == "img":
            self.images.append(found["src"])
        elif tag == "a":
            self.links.append(found["href"])


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    """The service on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/mturk/externalSubmit":  # a worker's browser
                fields = parse_qs(text.decode())
                hit, worker = fields.pop("assignmentId")[0].split("-")
                joined = {name: "|".join(values) for name, values in fields.items()}
                service.submit(hit, worker, joined)
                return self._send(200, b"thank you", "text/plain")
            given = json.loads(text)
            target = self.headers["X-Amz-Target"]
            signed = self.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256")
            status, body = 200, {}
            try:
                if not (signed and target.startswith(_TARGET)):
                    raise Refusal("UnrecognizedClientException", "", "The token is not valid")
                body = service.answer(target.removeprefix(_TARGET), given)
            except Refusal as error:
                status, body = error.status, error.body
            return self._send(status, json.dumps(body).encode(), "application/x-amz-json-1.1")

        def do_GET(self) -> None:
            name = urlsplit(self.path).path
            path = service.images / name.removeprefix("/images/")
            if name.startswith("/hit/"):
                page = service.page_of(name.removeprefix("/hit/")).text
                self._send(200, page.encode(), "text/html; charset=utf-8")
            elif path.is_file():
                self._send(200, path.read_bytes(), "image/jpeg")
            else:
                self._send(404, b"", "text/plain")

        def _send(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
