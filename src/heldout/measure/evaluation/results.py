"""What an evaluation gives: records, what was noticed on the way, and the values behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from heldout.core.extras import require
from heldout.measure.evaluation.predicting import FailedImage
from heldout.measure.mistakes.tally import Study
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import (
    Comparison,
    Count,
    Fit,
    Record,
    Score,
    Summary,
    Tally,
    to_dict,
    to_json,
)


@dataclass(frozen=True)
class Results:
    """Records of an evaluation, what was noticed on the way, and the values behind the records.

    ``failures`` lists every image that some model has no output for; ``studies`` hold the mistakes
    behind the tallies, where these were asked for.
    """

    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = field(default=(), repr=False)
    failures: tuple[FailedImage, ...] = field(default=(), repr=False)
    studies: tuple[Study, ...] = field(default=(), repr=False)

    @property
    def scores(self) -> tuple[Score, ...]:
        """The score records."""
        return tuple(record for record in self.records if isinstance(record, Score))

    @property
    def fits(self) -> tuple[Fit, ...]:
        """The fit records."""
        return tuple(record for record in self.records if isinstance(record, Fit))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparison records."""
        return tuple(record for record in self.records if isinstance(record, Comparison))

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """The summary records."""
        return tuple(record for record in self.records if isinstance(record, Summary))

    @property
    def counts(self) -> tuple[Count, ...]:
        """The count records."""
        return tuple(record for record in self.records if isinstance(record, Count))

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """The tally records."""
        return tuple(record for record in self.records if isinstance(record, Tally))

    def to_json(self) -> str:
        """All records as one JSON array."""
        return to_json(self.records)

    def to_pandas(self) -> Any:
        """The score records as a data frame (other records: ``pandas.DataFrame(results.fits)``)."""
        pandas = require("pandas", extra="pandas", purpose="a data frame")
        return pandas.DataFrame([to_dict(record) for record in self.scores])
