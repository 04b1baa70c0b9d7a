"""Fixtures for all tests, and the one rule on skipping.

What a machine lacks (the published data, a browser) is skipped with a loud summary at the end on
a developer's machine, and is a failure where ``CI`` is set: nothing passes there by being skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Machines differ and tests never measure time; what an example may take is not a property. The same
# examples every time, so that a change is judged and not chance; HELDOUT_EXPLORE=1 draws others.
settings.register_profile(
    "heldout", deadline=None, derandomize=not os.environ.get("HELDOUT_EXPLORE")
)
settings.load_profile("heldout")

ROOT = Path(__file__).parent.parent
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
_could_not_run: dict[str, int] = {}


def _missing(what: str, fix: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing and nothing may be skipped in CI: {fix}")
    _could_not_run[f"{what}: {fix}"] = _could_not_run.get(f"{what}: {fix}", 0) + 1
    pytest.skip(f"{what} is missing: {fix}")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of published data beside the checkout."""
    folder = Path(os.environ.get("HELDOUT_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        _missing("the published data", "lay it at ../shared/data or set HELDOUT_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real Chromium, driven by Playwright."""
    path = os.environ.get("HELDOUT_CHROMIUM") or next(
        (p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None
    )
    if path is None:
        _missing("a browser", "apt-get install chromium, or set HELDOUT_CHROMIUM to its path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True)
def _own_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the checkout: the current folder and the workspace are temporary."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HELDOUT_WORKSPACE", raising=False)
    monkeypatch.delenv("HELDOUT_JUDGEMENTS", raising=False)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say loudly what could not be run."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("COULD NOT RUN", sep="!", red=True, bold=True)
        reasons: dict[str, int] = {}
        for report in skipped:
            reason = str(
                report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            )
            reasons[reason] = reasons.get(reason, 0) + 1
        for reason, count in sorted(reasons.items()):
            terminalreporter.write_line(f"{count} tests: {reason.removeprefix('Skipped: ')}")
