"""Votes that adaptive stopping saves, what it costs, and whether frequencies stay without bias.

Real votes: the five answers (no, maybe, yes) to each of 184,962 pairs of image and class behind the
ReaL labels. A rule sees them one by one in a random order, 20 times. Its decision is compared with that
of all five: yes if three of five say so, maybe counting as not yes. Fitted rules are fitted on one half
of the images and tested on the other; how much a wrong decision costs them (``price``) and how many
images of all classes stand beside those of a class (``strength``) are chosen by five folds of the first:
the fewest votes at an agreement of 99 % and a standard error.

four lines   stop at two plain "no" and nothing else, or when the votes to come cannot matter::

                 no, yes = votes.count("no"), votes.count("yes")
                 if votes == ["no", "no"] or yes == 3 or len(votes) - yes == 3:
                     break
                 ask()

             "two no at any time" also stops after other votes, and is worse
certain      stop when the votes to come cannot matter
first n      ask n people about everything
width        stop at a width of Wilson's interval
sure         stop when the decision is this probable, all frequencies being equally likely before
fitted       the cheapest rule for the votes on images of all classes (one rule), or of each class

Experts: 1,135 of the pairs were answered by five experts; gold is their majority. Dawid-Skene against
the majority and against "two yes of five", intervals by resampling images.

Simulated crowd: images with a true frequency, people with skill and bias, ten votes; the rules of
``--stop``, against the fixed ten.

    python benchmarks/stopping.py [--data ../shared/data] [--orders 20] [--write]

writes benchmarks/results/stopping.md and docs/images/stopping.svg.
"""

from __future__ import annotations

import argparse
import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from heldout.curate.crowd.stopping import (
    State,
    StoppingRule,
    StoppingRules,
    fate,
    fitted_rules,
    states,
)
from heldout.data.judgements.consensus import Panel, dawid_skene
from heldout.data.published.answers import read_real_panel
from heldout.data.testset.hashing import row_hash, uniform
from heldout.show import charts
from heldout.show.exports import write_figure
from heldout.stats.bootstrap import bootstrap_mean
from machine import describe, write_result

FIGURE = Path(__file__).parents[1] / "docs/images/stopping.svg"
ANSWERS = ("wrong", "unclear", "correct")  # no, maybe, yes
VOTES, MAJORITY = 5, 0.6
PRICES = (60, 100, 150, 200, 250, 300, 350, 400, 500, 600, 800, 1000)
TRIED = range(200, 600, 10)
STRENGTHS = (25.0, 50.0, 100.0)
GOAL = 0.99
SHOWN = (
    "fitted by class", "four lines", "fitted, one rule", "sure", "width", "two no at any time", "first n",
)  # fmt: skip
"""Kinds of rules in the figure."""
SHAPES = (*charts.CATEGORY_SHAPES[:6], "triangle-right")
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Pairs of image and class with five answers each: codes (n, 5), image codes, class codes."""

    answers: IntArray
    image: IntArray
    label: IntArray
    names: tuple[str, ...]

    def part(self, chosen: npt.NDArray[np.bool_]) -> Pairs:
        """Some of them."""
        return Pairs(self.answers[chosen], self.image[chosen], self.label[chosen], self.names)

    @property
    def counts(self) -> IntArray:
        """How often each pair got each answer: (n, 3)."""
        return np.stack([(self.answers == code).sum(axis=1) for code in range(3)], axis=1)

    @property
    def finished(self) -> dict[str, list[State]]:
        """The states of all votes, by class."""
        found: dict[str, list[State]] = {}
        for label, state in zip(self.label.tolist(), self.counts.tolist(), strict=True):
            found.setdefault(self.names[label], []).append(tuple(state))
        return found


def read_pairs(panel: Panel) -> Pairs:
    """The pairs of a panel of five answers each."""
    recode = np.array([ANSWERS.index(answer) for answer in panel.answers])
    subjects = [json.loads(text) for text in panel.subjects]
    images = {name: n for n, name in enumerate(dict.fromkeys(s["image_id"] for s in subjects))}
    labels = {name: n for n, name in enumerate(sorted({s["class_id"] for s in subjects}))}
    return Pairs(
        recode[panel.answer].reshape(-1, VOTES),
        np.array([images[s["image_id"]] for s in subjects]),
        np.array([labels[s["class_id"]] for s in subjects]),
        tuple(labels),
    )


@dataclass(frozen=True)
class Outcome:
    """What a rule did: votes saved, agreement with all votes where they say yes and where not,
    and the worst bias of the share and of the estimate among images of one share of all votes.

    ``held``  by pair that all votes say yes of: how often the rule agrees
    """

    saved: float
    yes: float
    other: float
    share_bias: float
    estimate_bias: float
    held: npt.NDArray[np.float64]


def play(rules: StoppingRules, pairs: Pairs, orders: int, *, bias: bool = False) -> Outcome:
    """Show the votes in random orders, one by one, until the rule of the class stops."""
    known = list(states(VOTES, 3))
    place = np.zeros((VOTES + 1,) * 3, np.int64)
    for row, state in enumerate(known):
        place[state] = row
    of_class = [rules.of(name) for name in pairs.names]
    stops = np.array([[rule.settled(state) for state in known] for rule in of_class])
    shares = np.array([state[-1] / max(sum(state), 1) for state in known])
    yes_at = np.array([sum(state) > 0 and fate(state, (MAJORITY,)) == 1 for state in known])
    full = pairs.counts[:, 2]
    majority = 2 * full > VOTES
    estimates = np.zeros(stops.shape)
    if bias:
        estimates = np.array([[r.estimate(s) if sum(s) else 0.0 for s in known] for r in of_class])
    votes = agreed_other = 0
    held = np.zeros(int(majority.sum()), np.int64)
    sums = np.zeros((2, VOTES + 1))
    for order in range(orders):
        shown = np.random.default_rng(order).permuted(pairs.answers, axis=1)
        seen = (shown[:, :, None] == np.arange(3)).cumsum(axis=1)
        path = place[seen[..., 0], seen[..., 1], seen[..., 2]]
        stopped = stops[pairs.label[:, None], path].argmax(axis=1)
        end = path[np.arange(len(path)), stopped]
        right = yes_at[end] == majority
        votes += int((stopped + 1).sum())
        held += right[majority]
        agreed_other += int(right[~majority].sum())
        for row, found in enumerate((shares[end], estimates[pairs.label, end])):
            sums[row] += np.bincount(full, found - full / VOTES, minlength=VOTES + 1)
    worst = np.abs(sums / (orders * np.bincount(full, minlength=VOTES + 1))).max(axis=1)
    return Outcome(
        1 - votes / (orders * VOTES * len(full)),
        float(held.mean()) / orders,
        agreed_other / (orders * int((~majority).sum())),
        *map(float, worst),
        held / orders,
    )


def one_rule(stops: Callable[[State], bool]) -> StoppingRules:
    """One rule for all classes: stop where a function of (no, maybe, yes) says so."""
    inside = (state for state in states(VOTES, 3) if 0 < sum(state) < VOTES)
    return StoppingRules(StoppingRule(VOTES, frozenset(filter(stops, inside)), answers=3))


def of_text(text: str) -> StoppingRules:
    """A rule of two answers, for which maybe is not yes."""
    rule = StoppingRule.read(text, VOTES)
    return one_rule(lambda state: rule.settled((state[0] + state[1], state[2])))


def certain(state: State) -> bool:
    """Whether the votes to come cannot change the majority."""
    return state[2] >= 3 or state[0] + state[1] >= 3


Family = list[tuple[str, StoppingRules]]


def families(train: Pairs, strength: float) -> dict[str, Family]:
    """All rules by kind, each with its setting."""
    finished = train.finished
    fitted: dict[str, Family] = {"fitted, one rule": [], "fitted by class": []}
    for price in PRICES:
        for name, many in (("fitted, one rule", 1e12), ("fitted by class", strength)):
            made = fitted_rules(finished, cuts=(MAJORITY,), price=price, strength=many)
            fitted[name].append((f"price {price}", made))
    return {
        "certain": [("", one_rule(certain))],
        "four lines": [("", one_rule(lambda state: state == (2, 0, 0) or certain(state)))],
        "two no at any time": [("", one_rule(lambda state: state[0] >= 2 or certain(state)))],
        "first n": [(f"n = {n}", one_rule(lambda s, n=n: sum(s) == n)) for n in (1, 2, 3, 4)],
        "width": [(f"{w}", of_text(f"width={w}")) for w in (0.5, 0.6, 0.65, 0.7, 0.75)],
        "sure": [
            (f"{p}", of_text(f"threshold={MAJORITY},sure={p}"))
            for p in (0.99, 0.97, 0.95, 0.9, 0.85, 0.8)
        ],
        **fitted,
    }


def choose(train: Pairs, folds: int, orders: int) -> tuple[float, int, float, float]:
    """Strength and price with the fewest votes at the goal, each fold tested with the others' fit;
    and the votes that they saved there, and the agreement.

    The agreement of the folds must be a standard error above the goal: the best of many is chosen.
    """
    yes = int((2 * train.counts[:, 2] > VOTES).sum())
    least = GOAL + (GOAL * (1 - GOAL) / yes) ** 0.5
    fold = (uniform(row_hash([str(n) for n in train.image.tolist()], seed=1)) * folds).astype(int)
    parts = [(train.part(fold != n).finished, train.part(fold == n)) for n in range(folds)]

    def tested(strength: float, price: int) -> tuple[float, float]:
        held = [
            play(fitted_rules(fit, cuts=(MAJORITY,), price=price, strength=strength), test, orders)
            for fit, test in parts
        ]
        agreed = np.concatenate([one.held for one in held])
        return float(np.mean([one.saved for one in held])), float(agreed.mean())

    found = []
    for strength in STRENGTHS:
        # Agreement rises with the price, but for noise, and votes are saved less.
        place = bisect_left(TRIED, least, key=lambda price, s=strength: tested(s, price)[1])  # type: ignore[misc]
        price = TRIED[min(place, len(TRIED) - 1)]
        saved, agreed = tested(strength, price)
        found.append((saved, strength, price, agreed))
    saved, strength, price, agreed = max(found)
    return strength, price, saved, agreed


def percent(value: float, digits: int = 1) -> str:
    """A share in percent."""
    return f"{100 * value:.{digits}f}"


def real_votes(pairs: Pairs, orders: int) -> tuple[list[str], list[dict[str, object]]]:
    """The tables of the real votes, and the points of the figure."""
    half = uniform(row_hash([str(n) for n in range(int(pairs.image.max()) + 1)], seed=0)) < 0.5
    first, second = pairs.part(half[pairs.image]), pairs.part(~half[pairs.image])
    lines: list[str] = []
    rows: list[dict[str, object]] = []
    for turn, (train, test) in enumerate(((first, second), (second, first))):
        strength, price, saved, agreed = choose(train, 5, 10)
        said = (
            f"fitted on {len(np.unique(train.image)):,} images, tested on {len(test.image):,} pairs of "
            f"{len(np.unique(test.image)):,} others; chosen by folds: price {price}, strength "
            f"{strength:g} (there {percent(saved)} % fewer votes at {percent(agreed, 2)} %)"
        )
        lines += [
            f"{'The halves swapped' if turn else 'First'}: {said}.",
            "",
            "| rule | setting | fewer votes, % | agreement among yes, % | among the others, % "
            "| worst bias of the share | of the estimate |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        voted = 2 * test.counts[:, 2] > VOTES
        images = np.unique(test.image[voted], return_inverse=True)[1]
        kinds = families(train, strength)
        chosen_rules = fitted_rules(
            train.finished, cuts=(MAJORITY,), price=price, strength=strength
        )
        kinds["fitted by class, chosen"] = [(f"price {price}", chosen_rules)]
        for name, family in kinds.items():
            before: tuple[float, float] | None = None
            for setting, rules in family:
                if turn and not (name.startswith("fitted by") or name in ("certain", "four lines")):
                    continue
                found = play(rules, test, orders, bias=True)
                if (found.saved, found.yes) == before:  # another setting of the same rule
                    continue
                before = found.saved, found.yes
                mark = "**" if rules is chosen_rules else ""
                limits = bootstrap_mean(
                    found.held, rng=np.random.default_rng(0), clusters=images
                ).interval
                lines.append(
                    f"| {mark}{name}{mark} | {setting} | {mark}{percent(found.saved)}{mark} | "
                    f"{mark}{percent(found.yes, 2)}{mark} [{percent(limits.low)}, "
                    f"{percent(limits.high)}] | {percent(found.other, 2)} | "
                    f"{found.share_bias:.3f} | {found.estimate_bias:.3f} |"
                )
                if not turn and name in SHOWN:
                    rows.append({"rule": name, "x": found.saved, "y": found.yes})
        lines.append("")
    return lines, rows


def frontier(rows: Sequence[dict[str, object]]) -> charts.Figure:
    """Agreement against votes saved: a line for each kind of rule that has settings."""
    names = list(SHOWN)
    low, high = 0.88, 1.0
    shown = [
        {**row, "series": names.index(str(row["rule"]))}
        for row in rows
        if float(str(row["y"])) >= low
    ]
    x, y = (
        charts.number(field, charts.percent_axis(title), domain=ends, nice=False, zero=False)
        for field, title, ends in (
            ("x", "fewer votes than five", [0.0, 0.7]),
            ("y", "agreement among yes", [low, high]),
        )
    )
    colour = charts.series(names, charts.CATEGORIES)
    return charts.figure(
        ("stopping",),
        "Agreement with the majority of five votes among images that it says yes of, against votes "
        "saved: at 99 % rules fitted by class save most.",
        title="Adaptive stopping on the votes behind ReaL",
        caption="",
        titles={},
        names=names,
        rows=shown,
        height=380,
        layer=[
            charts.draw("rule", {"color": charts.MUTED, "strokeDash": [5, 4]}, rows=[{"y": GOAL}], y=y),
            charts.draw("line", x=x, y=y, color=colour),
            charts.draw(
                "point", {"size": 60, "filled": True}, x=x, y=y, color=colour,
                shape=charts.series(names, SHAPES),
            ),
        ],
    )  # fmt: skip


def experts(panel: Panel, gold: Panel) -> list[str]:
    """Consensus by three rules against the majority of five experts."""
    yes = panel.answers.index("correct")
    place = {subject: row for row, subject in enumerate(panel.subjects)}
    rows = np.array([place[subject] for subject in gold.subjects])
    truth = 2 * gold.counts()[:, gold.answers.index("correct")] > 5
    votes = panel.counts()[rows, yes]
    fit = dawid_skene(panel)
    probability = fit.posterior[rows, fit.truths.index("correct")]
    said = {
        "majority": votes >= 3,
        "two yes of five": votes >= 2,
        "Dawid-Skene": probability > 0.5,
        "Dawid-Skene, at least 0.8 (the cut of ReaL)": probability >= 0.8,
    }
    images = np.unique([json.loads(s)["image_id"] for s in gold.subjects], return_inverse=True)[1]
    right = np.stack([found == truth for found in said.values()], axis=1).astype(float)
    pairs = [(2, 0), (2, 1), (3, 0), (3, 1), (1, 0)]
    gaps = np.stack([right[:, a] - right[:, b] for a, b in pairs], axis=1)
    rng = np.random.default_rng(0)
    alone = bootstrap_mean(right, rng=rng, clusters=images, replicates=4000)
    paired = bootstrap_mean(gaps, rng=rng, clusters=images, replicates=4000, bounds=(-1, 1))
    lines = [
        f"{len(rows):,} pairs of {images.max() + 1} images, of which the experts' majority says yes to "
        f"{percent(truth.mean())} %; Dawid-Skene is fitted on all {len(panel):,} answers of "
        f"{len(panel.workers)} people. 95 % intervals: {paired.interval.method}, whole images.",
        "",
        "| consensus | right, % | of gold's yes, % | of its own yes, % |",
        "|---|---:|---:|---:|",
    ]
    for column, (name, found) in enumerate(said.items()):
        low, high = (percent(getattr(alone.interval, end)[column]) for end in ("low", "high"))
        both = float((found & truth).sum())
        lines.append(
            f"| {name} | {percent(right[:, column].mean())} [{low}, {high}] | "
            f"{percent(both / truth.sum())} | {percent(both / found.sum())} |"
        )
    names = list(said)
    lines += ["", "| against | difference, points |", "|---|---:|"]
    for column, (a, b) in enumerate(pairs):
        low, high = (100 * getattr(paired.interval, end)[column] for end in ("low", "high"))
        value = 100 * gaps[:, column].mean()
        lines.append(f"| {names[a]} - {names[b]} | {value:+.1f} [{low:+.1f}, {high:+.1f}] |")
    return lines


TEXTS = (
    "no=2", "no=4", "width=0.5", "threshold=0.7", "threshold=0.7,every=3", "threshold=0.7,sure=0.95",
    "threshold=0.7,sure=0.9", "matched", "matched,sure=0.9", "matched,sure=0.7",
)  # fmt: skip
TEN = 10


def simulated(crowds: int, images: int) -> list[str]:
    """Rules against ten votes of people with skill and bias on images with a true frequency."""
    sums: dict[str, list[npt.NDArray[np.float64]]] = {}
    for seed in range(crowds):
        rng = np.random.default_rng(seed)
        ease = rng.beta(1.5, 0.8, images)
        skill, bias = rng.lognormal(0.0, 0.4, 60), rng.normal(0.0, 0.6, 60)
        odds = np.log(ease / (1 - ease) + 1e-12)
        chance = 1 / (1 + np.exp(-(odds[:, None] * skill + bias)))
        true = chance.mean(axis=1)
        people = np.argsort(rng.random(chance.shape), axis=1)[:, :TEN]
        votes = rng.random((images, TEN)) < np.take_along_axis(chance, people, axis=1)
        half = np.arange(images) % 2 == 0
        ends = [(TEN - int(n), int(n)) for n in votes[half].sum(axis=1)]
        rules = {"fixed ten": StoppingRule(TEN)}
        rules |= {text: StoppingRule.read(text, TEN) for text in TEXTS}
        for price in (20, 100):
            fitted = fitted_rules({"": ends}, cuts=(0.7,), price=price, strength=1.0)
            rules[f"fitted at 0.7, price {price}"] = fitted.others
        for name, rule in rules.items():
            found = _ends(rule, votes[~half])
            sums.setdefault(name, []).append(_row(rule, found, votes[~half], true[~half]))
    lines = [
        f"{crowds} crowds of 60 people, {images // 2:,} images each (as many to fit on). Decision: the "
        "side of 0.7, or the bin of 0.2 for rules that decide bins, against that of all ten votes. Bias "
        "and error against the true frequency, which nobody has seen; the worst bias is that of images "
        "with a true frequency within a fifth.",
        "",
        "| rule | fewer votes, % | decided as by ten, % | bias of the share | of the estimate "
        "| worst: share | worst: estimate | error of the share | of the estimate |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    errors: list[float] = []
    for name, rows in sums.items():
        mean = np.mean(rows, axis=0)
        errors.append(float(np.std([row[3] for row in rows], ddof=1)) / len(rows) ** 0.5)
        saved, same, share, estimate = mean[:4]
        worst = np.abs(mean[4:14]).reshape(2, 5).max(axis=1)
        error = np.sqrt(mean[14:])
        lines.append(
            f"| {name} | {percent(saved)} | {percent(same)} | {share:+.4f} | {estimate:+.4f} | "
            f"{worst[0]:.3f} | {worst[1]:.3f} | {error[0]:.3f} | {error[1]:.3f} |"
        )
    lines += [
        "",
        f"Standard error of a bias of the estimate: {min(errors):.4f} to {max(errors):.4f}.",
    ]
    return lines


def _ends(rule: StoppingRule, votes: npt.NDArray[np.bool_]) -> list[State]:
    """Where asking stops, votes being given in their order."""
    found: list[State] = []
    for row in votes.cumsum(axis=1).tolist():
        stop = next(
            n
            for n in range(1, TEN + 1)
            if n == TEN or (n % rule.every == 0 and rule.settled((n - row[n - 1], row[n - 1])))
        )
        found.append((stop - row[stop - 1], row[stop - 1]))
    return found


def _row(
    rule: StoppingRule,
    ends: Sequence[State],
    votes: npt.NDArray[np.bool_],
    true: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Votes saved, decisions kept, biases, biases by fifth, and squared errors of one crowd."""
    cuts = rule.cuts or (0.7,)
    n = np.array([sum(end) for end in ends])
    all_votes = [(TEN - int(k), int(k)) for k in votes.sum(axis=1)]
    same = [fate(a, cuts) == fate(b, cuts) for a, b in zip(ends, all_votes, strict=True)]
    off = [
        np.array(found) - true
        for found in ([end[1] / sum(end) for end in ends], [rule.estimate(end) for end in ends])
    ]
    fifth = np.minimum((true * 5).astype(int), 4)
    by_fifth = [np.bincount(fifth, each, 5) / np.bincount(fifth, minlength=5) for each in off]
    squared = [float(np.square(each).mean()) for each in off]
    return np.array(
        [
            1 - n.mean() / TEN,
            np.mean(same),
            off[0].mean(),
            off[1].mean(),
            *np.ravel(by_fifth),
            *squared,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--orders", type=int, default=20)
    parser.add_argument("--crowds", type=int, default=60)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    start = time.perf_counter()
    folder = given.data / "mistakes/real"
    panel = read_real_panel(folder / "raters.npz")
    table, rows = real_votes(read_pairs(panel), given.orders)
    found: Iterable[str] = [
        "# Adaptive stopping",
        "",
        f"{describe('numpy', 'scipy')}. Made by `benchmarks/stopping.py`.",
        "",
        "## Real votes",
        "",
        f"{given.orders} orders of the five votes behind ReaL; agreement is with the majority of all "
        "five, with 95 % intervals over images. Bias: among pairs with the same share of yes in five "
        "votes, the worst mean difference from that share; with five votes it is 0, and for the estimate "
        "after stopping only the draw of orders is left.",
        "",
        *table,
        "![Agreement against votes saved](../../docs/images/stopping.svg)",
        "",
        "## Experts",
        "",
        *experts(panel, read_real_panel(folder / "golden.npz", prefix="expert")),
        "",
        "## Simulated crowd",
        "",
        *simulated(given.crowds, 4000),
        "",
    ]
    text = "\n".join(found)
    if given.write:
        write_figure(frontier(rows), FIGURE)
        write_result("stopping", text)
    else:
        print(text)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
