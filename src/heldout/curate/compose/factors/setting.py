"""The facts of a factor as fields, and settings: factors that only say how another one acts."""

from __future__ import annotations

from dataclasses import dataclass

from heldout.curate.compose.factors.accepts import Accepts
from heldout.curate.compose.factors.protocol import Plain
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.scene import Value
from heldout.data.testset.columns import ColumnType


@dataclass(frozen=True, eq=False, kw_only=True)
class Described(Plain):
    """A factor described by its facts; what it does is added by a class of its own."""

    key: str
    neutral: Value | None
    values: tuple[Value, ...]
    accepts: Accepts
    stage: Stage
    column: ColumnType
    measured: str = ""
    needs: tuple[str, ...] = ()
    help: str = ""

    def check(self, value: object) -> Value:
        """The value in its canonical form, or a user's error."""
        return self.accepts.check(self.key, value)


class Setting(Described):
    """A value that another factor reads; it can be varied in a grid like any factor."""
