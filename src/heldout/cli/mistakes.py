"""``heldout mistakes``: what models get wrong; one module a sub-command, registered here."""

from __future__ import annotations

import typer

from heldout.cli.mistakes_accuracy import accuracy
from heldout.cli.mistakes_confusions import confusions
from heldout.cli.mistakes_consensus import consensus
from heldout.cli.mistakes_cooccurrence import cooccurrence
from heldout.cli.mistakes_overlap import diff, overlap
from heldout.cli.mistakes_panel import panel
from heldout.cli.mistakes_propose import propose
from heldout.cli.mistakes_quality import quality
from heldout.cli.mistakes_queue import queue
from heldout.cli.mistakes_slices import slices
from heldout.cli.mistakes_summary import summary

app = typer.Typer(
    help="What models get wrong: confusions, consensus, overlap, categories, severity.",
    no_args_is_help=True,
)
app.command("summary")(summary)
app.command("confusions")(confusions)
app.command("consensus")(consensus)
app.command("overlap")(overlap)
app.command("diff")(diff)
app.command("cooccurrence")(cooccurrence)
app.command("propose")(propose)
app.command("quality")(quality)
app.command("queue")(queue)
app.command("panel")(panel)
app.command("accuracy")(accuracy)
app.command("slices")(slices)
