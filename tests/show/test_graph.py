"""Tests of :mod:`heldout.show.graph`."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.show.embed import script_hash, static
from heldout.show.graph import (
    ALONE,
    LETTER,
    LINE,
    GraphData,
    GraphLayout,
    Node,
    community_colours,
    render_graph,
    render_svg,
    short_name,
    write_graph,
)

from .graphs import made_graph, made_score
from .records import HOSTILE

# A drawn graph as files: escaped, closed to the world, the same bytes every time.


SVG = "{http://www.w3.org/2000/svg}"


def test_the_svg_has_every_node_edge_and_name() -> None:
    data = made_graph(14)
    root = ET.fromstring(render_svg(data))
    nodes = root.findall(f".//{SVG}g[@class='node']")
    assert len(nodes) == 14
    assert len(root.findall(f".//{SVG}line[@data-edge]")) == len(data.edges)
    assert sorted(n.find(f"{SVG}text").text for n in nodes) == sorted(n.label for n in data.nodes)
    assert root.find(f"{SVG}title").text == "pets"
    assert "14 nodes" in root.find(f"{SVG}desc").text


def test_hostile_names_are_text_in_both_forms() -> None:
    data = made_graph(12, names=HOSTILE, title=HOSTILE[0])
    svg = render_svg(data)
    root = ET.fromstring(svg)
    shown = [t.text for t in root.iter(f"{SVG}text")]
    assert any(HOSTILE[0][:20] in (text or "") for text in shown)
    page = render_graph(data)
    assert page.count("<script") == 3
    assert "<img" not in page.split("<script")[0].replace("&lt;img", "")
    for name in HOSTILE:
        if "<" in name:
            assert name not in page


def test_the_page_names_only_its_own_script_and_loads_nothing() -> None:
    page = render_graph(made_graph(8))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    said = policy[1].replace("&#39;", "'")
    assert said.startswith("default-src 'none'; script-src ")
    assert all(script_hash(static(name)) in said for name in ("dom.js", "graph.js"))
    assert "unsafe-eval" not in said and "unsafe-inline" not in said.split("style-src")[0]
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_the_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    for form in ("html", "svg"):
        for number in (1, 2):
            write_graph(made_graph(30), tmp_path / f"{number}.{form}")
        assert (tmp_path / f"1.{form}").read_bytes() == (tmp_path / f"2.{form}").read_bytes()


def test_a_png_is_drawn_from_the_svg(tmp_path: Path) -> None:
    from PIL import Image

    data = made_graph(10)
    write_graph(data, tmp_path / "g.png")
    with Image.open(tmp_path / "g.png") as image:
        assert image.width == pytest.approx(2 * max(data.layout.width, 560), abs=3)
        colours = image.convert("RGB").getcolors(1 << 20)
    assert colours is not None and len(colours) > 50  # not blank


def test_lines_are_as_wide_as_their_weights_and_the_key_says_so() -> None:
    nodes = [Node(name=str(i), label=str(i), size=9) for i in range(4)]
    edges = [(0, 1, 0.2), (1, 2, 0.6), (2, 3, 1.0)]
    root = ET.fromstring(render_svg(GraphData(title="t", nodes=nodes, edges=edges, threshold=0.2)))
    lines = root.findall(f".//{SVG}line")
    drawn = {n.get("data-edge"): float(n.get("stroke-width")) for n in lines if n.get("data-edge")}
    assert drawn == {"0": 0.8, "1": 2.9, "2": 5.0}
    key = [line for line in lines if line.get("data-edge") is None]
    assert [float(line.get("stroke-width")) for line in key] == [0.8, 5.0]
    texts = {text.text: float(text.get("x", 0)) for text in root.findall(f".//{SVG}text")}
    # One beside the other: the words, the thin line and its weight, the wide one and its own.
    assert texts["line: overlap"] + 60 < float(key[0].get("x1")) < float(key[0].get("x2"))
    assert float(key[0].get("x2")) < texts["0.2"] < float(key[1].get("x1"))
    assert float(key[1].get("x2")) < texts["1"] < 560


def test_a_small_graph_is_in_the_middle_of_its_picture() -> None:
    data = GraphData(title="t", nodes=[Node(name="a", label="a", size=3)])
    root = ET.fromstring(render_svg(data))
    (place,) = (g for g in root.findall(f"{SVG}g") if g.find(f"{SVG}g[@class='node']") is not None)
    shift = float(place.get("transform").removeprefix("translate(").split()[0])
    circle = root.find(f".//{SVG}circle[@class='body']")
    assert shift + float(circle.get("cx")) == pytest.approx(float(root.get("width")) / 2, abs=1)


def test_communities_have_colours_and_loners_are_grey() -> None:
    nodes = [Node(name=str(i), label=str(i), size=9, community=c) for i, c in enumerate((0, 0, 1))]
    colours = community_colours(GraphData(title="t", nodes=nodes))
    assert colours[0] == colours[1] != ALONE and colours[2] == ALONE


def test_scores_lie_about_the_model_on_everything() -> None:
    values = (0.2, 0.6, 0.9)
    nodes = [
        Node(name=str(i), label="", size=9, scores={"m": made_score(v, 9)})
        for i, v in enumerate(values)
    ]
    data = GraphData(title="t", nodes=nodes, overall={"m": made_score(0.6, 27)})
    assert (data.middle("m"), data.spread("m")) == pytest.approx((0.6, 0.4))


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    data = made_graph(4)
    with pytest.raises(UserError, match="no graph format"):
        write_graph(data, tmp_path / "g.pdf")
    with pytest.raises(UserError, match="without nodes"):
        GraphData(title="t", nodes=[])


# Where nodes stand: no two over one another, islands apart, the same every time.


@st.composite
def graphs(draw: st.DrawFn) -> GraphData:
    n = draw(st.integers(1, 24))
    sizes = draw(st.lists(st.integers(0, 900), min_size=n, max_size=n))
    groups = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    words = draw(st.lists(st.text("abc mnop", max_size=30), min_size=n, max_size=n))
    pairs = list(combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=40, unique=True)) if pairs else []
    return GraphData(
        title="t",
        nodes=[
            Node(name=f"{i}", label=words[i], size=sizes[i], community=groups[i]) for i in range(n)
        ],
        edges=[(a, b, draw(st.floats(0.2, 1.0))) for a, b in chosen],
        threshold=0.2,
    )


def boxes(data: GraphData, places: GraphLayout) -> np.ndarray:
    """Left, top, right, bottom of each node with its name below it."""
    wide = np.array([LETTER * len(short_name(node.label)) / 2 for node in data.nodes])
    half = np.maximum(wide, places.radius)
    return np.stack(
        [
            places.x - half,
            places.y - places.radius,
            places.x + half,
            places.y + places.radius + LINE,
        ],
        axis=1,
    )


@settings(max_examples=60)
@given(graphs())
def test_no_two_nodes_or_names_touch_and_all_is_inside(data: GraphData) -> None:
    places = data.layout
    found = boxes(data, places)
    assert np.isfinite(found).all()
    assert found[:, :2].min() >= 0
    assert (found[:, 2] <= places.width).all() and (found[:, 3] <= places.height).all()
    for a, b in combinations(range(len(found)), 2):
        apart = (found[a, :2] >= found[b, 2:] - 0.3) | (found[b, :2] >= found[a, 2:] - 0.3)
        assert apart.any(), (data.nodes[a], data.nodes[b])


@settings(max_examples=30)
@given(graphs())
def test_communities_are_islands(data: GraphData) -> None:
    places = data.layout
    found = boxes(data, places)
    outlines = [
        (set(data.communities[number]), corners.min(axis=0), corners.max(axis=0))
        for number, corners in places.islands.items()
    ]
    for group, low, high in outlines:
        for node, box in enumerate(found):
            inside = (box[:2] < high).all() and (box[2:] > low).all()
            assert inside == (node in group)
    assert {frozenset(g) for g, _, _ in outlines} <= {frozenset(g) for g in data.communities}


def test_larger_sets_are_larger_and_area_says_how_much() -> None:
    nodes = [Node(name=str(i), label=str(i), size=size) for i, size in enumerate((100, 400, 1600))]
    radius = GraphData(title="t", nodes=nodes).layout.radius
    assert radius[1] / radius[0] == pytest.approx(2, abs=0.01)
    assert radius[2] / radius[1] == pytest.approx(2, abs=0.01)


def test_nodes_near_each_other_are_those_that_share() -> None:
    data = made_graph(40, groups=4)
    places = data.layout
    at = np.stack([places.x, places.y], axis=1)
    far = np.sqrt(np.square(at[:, None] - at[None]).sum(axis=2))
    joined = np.zeros_like(far, dtype=bool)
    for a, b, _ in data.edges:
        joined[a, b] = joined[b, a] = True
    assert far[joined].mean() < 0.7 * far[~joined & (far > 0)].mean()


def test_nodes_without_an_edge_stand_in_rows_right_below_the_others() -> None:
    nodes = [Node(name=str(i), label=f"word {i}", size=9, community=i // 6) for i in range(6)]
    nodes += [Node(name=str(i), label=f"word {i}", size=9, community=i) for i in range(6, 26)]
    edges = [(a, b, 0.5) for a, b in combinations(range(6), 2)]
    places = GraphData(title="t", nodes=nodes, edges=edges, threshold=0.2).layout
    (outline,) = places.islands.values()
    (left, _), (right, bottom) = outline.min(axis=0), outline.max(axis=0)
    assert places.shelf is not None
    assert places.shelf[0] == pytest.approx(left, abs=0.2)
    assert bottom + LINE < places.shelf[1] < bottom + 60
    x, y, radius = places.x[6:], places.y[6:], places.radius[6:]
    assert (y - radius).min() == pytest.approx(places.shelf[1], abs=10)
    assert (x - radius).min() >= left and (x + radius).max() <= right + 0.2
    rows = [x[y == row] for row in np.unique(y)]
    # Beside each other: twice a node's radius, and a little air.
    wide = 2 * radius.max()
    assert all(wide < np.diff(np.sort(row)).max() < wide + 20 for row in rows if len(row) > 1)
    assert len(rows) > 2 and {len(row) for row in rows[:-1]} == {len(rows[0])} != {1}


def test_one_node_and_no_edges_are_drawn_too() -> None:
    assert GraphData(title="t", nodes=[Node(name="a", label="a", size=3)]).layout.islands == {}
    alone = [Node(name=str(i), label=f"w {i}", size=i, community=i) for i in range(50)]
    places = GraphData(title="t", nodes=alone).layout
    assert places.shelf is not None and len({*places.y.tolist()}) > 2
