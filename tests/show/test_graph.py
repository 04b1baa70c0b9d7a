"""A drawn graph as files: escaped, closed to the world, the same bytes every time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from heldout.core.errors import UserError
from heldout.show.embed import script_hash, static
from heldout.show.graph import (
    ABOVE,
    ALONE,
    BELOW,
    MIDDLE,
    Edge,
    GraphData,
    Node,
    NodeScore,
    community_colours,
    render_graph,
    render_svg,
    score_colours,
    score_ends,
    write_graph,
)

from .graphs import made_graph
from .records import HOSTILE

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
    write_graph(data, tmp_path / "g.png", model="ant")
    with Image.open(tmp_path / "g.png") as image:
        assert image.width == pytest.approx(2 * max(data.layout.width, 560), abs=3)
        colours = image.convert("RGB").getcolors(1 << 20)
    assert colours is not None and len(colours) > 50  # not blank


def test_communities_have_colours_and_loners_are_grey() -> None:
    nodes = [Node(name=str(i), label=str(i), size=9, community=c) for i, c in enumerate((0, 0, 1))]
    colours = community_colours(GraphData(title="t", nodes=nodes))
    assert colours[0] == colours[1] != ALONE and colours[2] == ALONE


def test_scores_are_coloured_about_the_model_on_everything() -> None:
    values = (0.2, 0.6, 0.9)
    nodes = [
        Node(name=str(i), label="", size=9, scores={"m": NodeScore(value=v, n=9)})
        for i, v in enumerate(values)
    ]
    nodes.append(Node(name="none", label="", size=9))
    overall = {"m": NodeScore(value=0.6, n=27)}
    data = GraphData(title="t", nodes=nodes, overall=overall)
    colours = score_colours(data, "m", [*values, None])
    assert colours[0] == BELOW and colours[1] == MIDDLE and colours[3] == MIDDLE
    assert colours[2] not in (ABOVE, MIDDLE)  # above, but by less than the lowest is below
    assert score_ends(data, "m") == pytest.approx((0.2, 1.0))


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    data = made_graph(4)
    with pytest.raises(UserError, match="no graph format"):
        write_graph(data, tmp_path / "g.pdf")
    with pytest.raises(UserError, match="no node has a score of cow"):
        write_graph(data, tmp_path / "g.svg", model="cow")
    with pytest.raises(UserError, match="no distance 'far'"):
        replace(data, distance="far")
    with pytest.raises(UserError, match="without nodes"):
        GraphData(title="t", nodes=[])
    with pytest.raises(UserError, match="one name"):
        GraphData(title="t", nodes=[data.nodes[0], data.nodes[0]])
    with pytest.raises(UserError, match="an edge joins"):
        GraphData(title="t", nodes=data.nodes, edges=[Edge(a=0, b=9, weight=0.5)])
