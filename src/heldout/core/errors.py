"""The tree of errors, and the exit code of each.

::

    HeldoutError                a fault; exit 1, shown with its traceback
    └── UserError               a user error; exit 2, one line with the fix
        ├── BadFile             a file that cannot be read as what it should be; names the file
        ├── NotFound            a name, file or folder that is not there
        ├── LabelError          classes, label spaces or label maps that do not fit together
        ├── MismatchError       predictions and test set that do not belong together
        ├── NotApplicable       a metric or method that these data cannot support
        ├── ExistsError         would overwrite something different
        └── MissingExtra        an optional dependency that is not installed

Two outcomes are not errors but still end with an exit code of their own: ``EXIT_FAILED_IMAGES``
(done, some images failed and are listed) and ``EXIT_GATE`` (done, a gate was not met).
"""

from __future__ import annotations

from pathlib import Path

EXIT_DONE = 0
EXIT_FAULT = 1
EXIT_USER = 2
EXIT_FAILED_IMAGES = 3
EXIT_GATE = 4


class HeldoutError(Exception):
    """Any error that heldout raises on purpose."""


class UserError(HeldoutError):
    """A user error: ``message`` says what is wrong, ``fix`` what to do about it."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        self.message = message.rstrip(".")
        self.fix = fix.rstrip(".")
        super().__init__(self.line)

    @property
    def line(self) -> str:
        """The whole error on one line."""
        text = f"{self.message}: {self.fix}" if self.fix else self.message
        return " ".join(text.split())


class BadFile(UserError):
    """A file that cannot be read as what it should be."""

    def __init__(self, path: str | Path, message: str, *, fix: str = "") -> None:
        self.path = Path(path)
        super().__init__(f"{path}: {message}", fix=fix)


class NotFound(UserError):
    """A name, file or folder that is not there."""


class LabelError(UserError):
    """Classes, label spaces or label maps that do not fit together."""


class MismatchError(UserError):
    """Predictions and a test set that do not belong together."""


class NotApplicable(UserError):
    """A metric or a method that these data cannot support."""


class ExistsError(UserError):
    """Refusal to overwrite something different."""


class MissingExtra(UserError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed",
            fix=f"pip install 'heldout[{extra}]'",
        )
