"""Every Python block of the documentation runs, in order, in one namespace a file; and the examples."""

from __future__ import annotations

import re
import runpy
import shlex
from contextlib import suppress
from pathlib import Path

import click
import pytest

from heldout.cli.app import Group, VerbCommand
from heldout.core.errors import NotFound
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
    command: click.Command | None = Group()
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    assert isinstance(command, VerbCommand), line
    # A file that a line names, such as mine.toml, need not be here.
    with command.make_context("heldout", words) as context, suppress(NotFound):
        make(command.verb.type, command._values(context.params), spell=command._spell)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(example: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELDOUT_SHARED_DATA", str(shared_data))
    runpy.run_path(str(example), run_name="__main__")
