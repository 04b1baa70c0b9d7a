"""Which domains and classes stay: pure rules on the table of counts.

Domains first, then classes on what is left. Every rule says how many rows, classes and domains it was
given and how many it kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.domains.counting import Counts
from heldout.curate.domains.parameters import DomainsParameters


@dataclass(frozen=True)
class Step:
    """One rule: what came in and what went out; ``details`` say what else there is to know.

    Classes and domains are None where nobody counted them: before the first pass over them.
    """

    name: str
    rows_in: int
    rows_out: int
    classes_in: int | None
    classes_out: int | None
    domains_in: int | None
    domains_out: int | None
    details: Mapping[str, object]


def make_step(name: str, before: Counts, after: Counts, **details: object) -> Step:
    """The step from one table of counts to the next."""
    return Step(
        name,
        before.total,
        after.total,
        int((before.by_class > 0).sum()),
        int((after.by_class > 0).sum()),
        int((before.by_domain > 0).sum()),
        int((after.by_domain > 0).sum()),
        details,
    )


def keep_domains(counts: Counts, parameters: DomainsParameters) -> tuple[Counts, list[Step]]:
    """Drop domains with less than a share of the rows, or with too few of them.

    The share is of the rows that the step is given (after ``top``), and a domain of exactly that
    share stays.
    """
    sizes = counts.by_domain
    kept = sizes > 0
    if parameters.domains:
        missing = [name for name in parameters.domains if name not in counts.domains]
        if missing:
            raise UserError(
                f"no rows in domain {missing[0]!r}", fix=f"there is {_listed(counts.domains)}"
            )
        kept &= np.isin(counts.domains, parameters.domains)
    # Whole numbers over whole numbers: 0.04 of 25 rows is one row, however 0.04 is rounded.
    least = _ceiling(parameters.min_domain_share, counts.total)
    kept &= sizes >= max(least, parameters.min_domain)
    if not kept.any():
        raise UserError(
            f"no domain has {max(least, parameters.min_domain):,} of {counts.total:,} rows",
            fix="ask for a smaller --min-domain-share or --min-domain",
        )
    after = counts.only(domains=kept)
    dropped = {
        name: int(size)
        for name, size, stays in zip(counts.domains, sizes, kept, strict=True)
        if size and not stays
    }
    least_rows = max(least, parameters.min_domain)
    return after, [make_step("domain_minimum", counts, after, least=least_rows, dropped=dropped)]


def keep_classes(counts: Counts, parameters: DomainsParameters) -> tuple[Counts, list[Step]]:
    """Exclusions, spread over domains, minimum size, the largest ones; in this order.

    Sizes are counted after the domains were dropped; of equally large classes those with the
    smaller id are kept.
    """
    steps: list[Step] = []
    names = np.array(counts.classes, dtype=object)

    def step(name: str, before: Counts, kept: object, **details: object) -> Counts:
        after = before.only(classes=np.asarray(kept, dtype=bool))
        steps.append(make_step(name, before, after, **details))
        if not after.total:
            raise UserError(
                f"no class is left after the rule {name!r}", fix="ask for less: see --plan"
            )
        return after

    reasons = parameters.reasons
    if reasons:
        absent = sorted(
            set(reasons) - {n for n, s in zip(names, counts.by_class, strict=True) if s}
        )
        counts = step("exclusions", counts, [name not in reasons for name in names], absent=absent)
    if parameters.min_class_domains > 1:
        spread = (counts.cells > 0).sum(axis=1)
        counts = step("class_domains", counts, spread >= parameters.min_class_domains)
    if parameters.max_class_share < 1:
        largest = counts.cells.max(axis=1, initial=0).tolist()
        share = _exact(parameters.max_class_share)
        within = [
            most <= share * n for most, n in zip(largest, counts.by_class.tolist(), strict=True)
        ]
        counts = step("class_share", counts, np.array(within) & (counts.by_class > 0))
    if parameters.min_class > 1:
        counts = step("class_minimum", counts, counts.by_class >= parameters.min_class)
    if parameters.classes is not None:
        sizes = counts.by_class
        order = sorted(range(len(names)), key=lambda code: (-sizes[code], names[code]))
        chosen = [code for code in order if sizes[code]]
        kept = np.zeros(len(names), dtype=bool)
        kept[chosen[: parameters.classes]] = True
        cut = sizes[chosen[parameters.classes - 1 : parameters.classes + 1]]
        tied = len(cut) == 2 and cut[0] == cut[1]
        counts = step(
            "largest_classes",
            counts,
            kept,
            asked=parameters.classes,
            smallest=int(sizes[kept].min()),
            tie_cut=bool(tied),
        )
    return counts, steps


def _ceiling(share: float, total: int) -> int:
    """The least whole number that is at least ``share`` of ``total``, as the decimal share says."""
    exact = _exact(share) * total
    return -(-exact.numerator // exact.denominator)


def _exact(share: float) -> Fraction:
    """A share as the decimal that was written: 0.29 of 100 rows are 29."""
    return Fraction(repr(float(share)))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
