"""Hypothesis strategies for judgements, in one place."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from heldout.data.judgements.judgement import QUESTIONS, WITHDRAWN, Judgement, pair_subject

# Any Unicode but unpaired surrogates; plain columns also refuse NUL.
anything = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
plain = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12
)
times = st.none() | st.datetimes(
    min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=5,
)
evidences = st.dictionaries(anything, json_values, max_size=3)


@st.composite
def any_judgement(draw: st.DrawFn) -> Judgement:
    """A judgement of any built-in kind, with hostile texts."""
    question = QUESTIONS[draw(st.sampled_from(sorted(QUESTIONS)))]
    names = draw(st.sampled_from(question.subjects))
    if "other_id" in names:
        one, other = draw(st.lists(anything, min_size=2, max_size=2, unique=True))
        subject = pair_subject(one, other)
    else:
        subject = {name: draw(anything) for name in names}
    if question.parts:
        answer = {name: draw(st.sampled_from(values)) for name, values in question.parts.items()}
    else:
        answer = draw(st.sampled_from((*question.answers, WITHDRAWN)))
    return Judgement(
        question=question.kind,
        subject=subject,
        answer=answer,
        who=draw(plain),
        when=draw(times),
        evidence=draw(evidences),
        source=draw(st.just("") | plain),
        testset=draw(st.none() | plain),
        supersedes=draw(st.none() | st.just("0" * 32)),
    )


@st.composite
def busy_votes(draw: st.DrawFn) -> list[Judgement]:
    """Votes by few people on few subjects, with changes of mind, withdrawals and equal times."""
    votes: list[Judgement] = []
    for number in range(draw(st.integers(1, 12))):
        who = draw(st.sampled_from("xy"))
        subject = {"image_id": draw(st.sampled_from("ab")), "class_id": "c"}
        earlier = [v.judgement_id for v in votes if v.who == who and v.subject == subject]
        votes.append(
            Judgement(
                question="vote",
                subject=subject,
                answer=draw(st.sampled_from(("selected", "not-selected", WITHDRAWN))),
                who=who,
                when=draw(st.sampled_from((None, "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"))),
                evidence={"number": number},
                supersedes=draw(st.sampled_from((None, *earlier))),
            )
        )
    return votes


def vote(image: str, who: str, answer: str = "selected", **fields: object) -> Judgement:
    """A vote on image ``image`` for class ``c``."""
    return Judgement(
        question="vote",
        subject={"image_id": image, "class_id": "c"},
        answer=answer,
        who=who,
        **fields,  # type: ignore[arg-type]
    )
