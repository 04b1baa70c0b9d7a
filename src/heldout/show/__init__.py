"""Charts and one self-contained HTML file: how people read records.

Figures follow column types and record kinds; nothing here knows where a test set came from.
"""

from __future__ import annotations

from heldout.show.clip_benchmark import write_clip_benchmark_json
from heldout.show.data import ReportData
from heldout.show.figures import figures, write_figures
from heldout.show.graph_data import Edge, GraphData, Node, NodeScore, Sibling, Trait
from heldout.show.graph_page import render_graph, write_graph
from heldout.show.matrix_figure import matrix_figure, write_matrix
from heldout.show.mistake_diff import MistakeDiff, render_mistake_diff, write_mistake_diff
from heldout.show.page import render_report, write_report
from heldout.show.timm_csv import ModelFacts, write_timm_csv

__all__ = [
    "Edge",
    "GraphData",
    "MistakeDiff",
    "ModelFacts",
    "Node",
    "NodeScore",
    "ReportData",
    "Sibling",
    "Trait",
    "figures",
    "matrix_figure",
    "render_graph",
    "render_mistake_diff",
    "render_report",
    "write_clip_benchmark_json",
    "write_figures",
    "write_graph",
    "write_matrix",
    "write_mistake_diff",
    "write_report",
    "write_timm_csv",
]
