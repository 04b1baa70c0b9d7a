"""Generated graphs for the drawing's tests."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from heldout.curate.contexts.describe import Lift
from heldout.measure.score.records import Score
from heldout.show.graph import GraphData, Node


def made_graph(
    n: int = 14,
    *,
    seed: int = 0,
    groups: int = 3,
    names: tuple[str, ...] = (),
    thumbnails: bool = False,
    title: str = "pets",
    images: int = 400,
) -> GraphData:
    """A graph of sets of images, groups of which overlap more."""
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(0, groups, n))
    home = rng.integers(0, groups, images)
    sets = []
    for node in range(n):
        chance = np.where(home == group[node], 0.35, 0.03) * rng.uniform(0.3, 1.0)
        members = np.flatnonzero(rng.random(images) < chance)
        sets.append(members if len(members) else np.array([node]))
    edges = []
    near = np.zeros((n, n))
    for a in range(n):
        for b in range(a + 1, n):
            shared = len(np.intersect1d(sets[a], sets[b])) / min(len(sets[a]), len(sets[b]))
            near[a, b] = near[b, a] = shared
            if shared >= 0.2:
                edges.append((a, b, shared))
    np.fill_diagonal(near, -1)
    labels = [names[i] if i < len(names) else f"context {i}" for i in range(n)]
    ids = [f"image-{i:04d}" for i in range(images)]
    return GraphData(
        title=title,
        nodes=[
            Node(
                name=f"{title}({labels[i]})",
                label=labels[i],
                size=len(sets[i]),
                community=int(group[i]),
                scores={m: _score(rng, len(sets[i])) for m in ("ant", "bee")},
                traits=[
                    Lift(
                        context=labels[(i + 1) % n],
                        images=3,
                        rate=0.5,
                        class_rate=0.2,
                        lift=3.25,
                        low=2.0,
                        high=5.0,
                    )
                ],
                nearest=[(int(near[i].argmax()), 0.25)],
                farthest=[(int((i + n // 2) % n), 0.9)],
                members=sets[i].tolist(),
            )
            for i in range(n)
        ],
        edges=edges,
        threshold=0.2,
        weight="overlap",
        images=ids,
        thumbnails={int(i): picture(int(i)) for i in sets[0][:5]} if thumbnails else {},
        overall={m: made_score(0.7, images) for m in ("ant", "bee")},
    )


def made_score(value: float, n: int, **limits: float) -> Score:
    return Score(model="m", testset="t", truth="o", metric="top1", value=value, n=n, **limits)


def _score(rng: np.random.Generator, n: int) -> Score:
    value = float(rng.binomial(n, rng.uniform(0.4, 0.95))) / n
    return made_score(value, n, low=max(0.0, value - 0.08), high=min(1.0, value + 0.08))


def picture(seed: int) -> str:
    """A small image as a data URI."""
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
