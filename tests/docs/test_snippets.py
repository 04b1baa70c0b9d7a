"""Every Python block of the documentation runs, in order, in one namespace a file; and the examples."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from heldout.cli.app import Group, VerbCommand, is_old
from heldout.core.request import make

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_blocks_run(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__docs__"}
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text[: match.start(1)].count("\n")
        code = compile("\n" * line + match[1], str(page), "exec", dont_inherit=True)
        exec(code, namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_parse(page: Path) -> None:
    """Every ``heldout`` command line that the documentation shows makes a request."""
    for match in _SHELL.finditer(page.read_text(encoding="utf-8")):
        for line in match[1].replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ").strip()
            if line.startswith("heldout ") and "--help" not in line:
                parse(shlex.split(line, comments=True)[1:], line)


def parse(words: list[str], line: str) -> None:
    if is_old(words):
        parse_old(words, line)
        return
    command: click.Command | None = Group()
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    assert isinstance(command, VerbCommand), line
    with command.make_context("heldout", words) as context:
        make(command.verb.type, command._values(context.params), spell=command._spell)


def parse_old(words: list[str], line: str) -> None:
    from typer.main import get_command

    from heldout.cli.old import app

    command = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    if words and not words[0].startswith("-"):
        assert not getattr(command, "commands", None), line
    known = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-\d.*", word):
            assert word.partition("=")[0] in known, (line, word)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(example: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELDOUT_SHARED_DATA", str(shared_data))
    runpy.run_path(str(example), run_name="__main__")
