"""``heldout labels``: classes, their meaning, and classes that are like them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heldout.cli.console import emit, note, print_table, say
from heldout.cli.options import JsonOption, ReplaceOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.curate.contexts.vocabulary import SubsetNames
    from heldout.data.labels import LabelSpace
    from heldout.data.labels.word_matching import SubsetMatches

app = typer.Typer(
    help="Classes: search them, find similar ones, match words to them.", no_args_is_help=True
)


@app.command("match")
def match(
    tree: Annotated[
        Path, typer.Option(help="Tree of classes: JSON with id, name, index and children.")
    ],
    subsets: Annotated[
        Path | None, typer.Option(help="Names of subsets, subject(context), one a line.")
    ] = None,
    testset: Annotated[
        str | None,
        typer.Option(
            "--testset",
            "-t",
            help="Instead of --subsets: a set of build contexts; the label map is made for it.",
        ),
    ] = None,
    hierarchy: Annotated[
        Path | None,
        typer.Option(help="Vocabulary: JSON of parent and words; the names' own words by default."),
    ] = None,
    overrides: Annotated[
        Path | None, typer.Option(help="CSV of word and node; an empty node is no match.")
    ] = None,
    senses: Annotated[
        str,
        typer.Option(
            help="Senses of a class under which leaves count as covered: all, as published, or matched."
        ),
    ] = "all",
    wordnet: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a full WordNet 3.0 instead of the noun index that comes along."
        ),
    ] = None,
    classes: Annotated[
        str, typer.Option("--classes", help="Label space of the leaves, for the label map.")
    ] = "imagenet-1k",
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the matches, the doubts and a label map."),
    ] = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Match the words of subsets to classes through WordNet, and list the senses to doubt."""
    from heldout.core.records import Count
    from heldout.data.importing import read_classes
    from heldout.data.labels.word_matching import (
        match_subsets,
        match_words,
        matching_tables,
        read_class_tree,
        read_overrides,
        read_vocabulary,
        words_of,
    )
    from heldout.data.labels.wordnet import WordNetNouns
    from heldout.data.testset.exporters.owned_folder import write_documents

    names, target = _subset_names(subsets, testset, workspace)
    nodes = read_class_tree(tree)
    vocabulary = (
        words_of(names.subsets.values()) if hierarchy is None else read_vocabulary(hierarchy)
    )
    for text in (*names.notes, *nodes.notes, *vocabulary.notes):
        note(text)
    given = {} if overrides is None else read_overrides(overrides)
    for word in given:
        if word not in vocabulary.parents:
            note(f"the override of {word!r} has no effect: it is no word of the vocabulary")
    nouns = WordNetNouns.built_in() if wordnet is None else WordNetNouns.read(wordnet)
    words = match_words(vocabulary, nodes, nouns, overrides=given)
    found = match_subsets(names.subsets, words, senses=_senses(senses))
    doubted = words.suspicious
    if to is not None:
        space = read_classes(classes)
        reason = _no_map(found, space, target)
        if reason:
            note(f"no label map: {reason}")
        changed = write_documents(
            to,
            matching_tables(found, source=None if reason else space, target=target),
            kind="matching",
            about={"tree": nodes.name, "senses": senses, "overrides": given},
            replace=replace,
        )
        say(f"{to}: {'written' if changed else 'unchanged'}")
    counts = {
        "subsets": len(names.subsets),
        "words": len(vocabulary.parents),
        "words_matched": len(words.matches),
        "words_suspicious": len(doubted),
        "subsets_selected": len(found.selected),
        "classes_selected": len(found.classes),
        "leaves_covered": len(found.covered),
        "leaves": len(nodes.leaves),
    }
    emit([Count(name=name, value=value) for name, value in counts.items()], as_json=as_json)
    if not as_json:
        _show_doubts(found)


def _subset_names(
    file: Path | None, testset: str | None, workspace: Path | None
) -> tuple[SubsetNames, LabelSpace | None]:
    """Names of subsets from a file or from a test set, and the set's label space."""
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace
    from heldout.curate.contexts.subsets import read_subsets
    from heldout.curate.contexts.vocabulary import SubsetNames, read_subset_names
    from heldout.data.published.metashift import split_subset_name
    from heldout.data.testset import find_testset

    if (file is None) == (testset is None):
        raise UserError("names of subsets come from one place", fix="give --subsets or --testset")
    if file is not None:
        return read_subset_names(file), None
    found = find_testset(Workspace.find(workspace), str(testset))
    names = read_subsets(found).names
    return SubsetNames({name: split_subset_name(name) for name in names}), found.label_space


def _no_map(found: SubsetMatches, source: LabelSpace, target: LabelSpace | None) -> str:
    """Why there can be no label map, or an empty text."""
    tree = found.words.tree
    if not all(leaf in source for leaf in tree.leaves):
        return f"leaves of {tree.name} are not classes of {source.name}; see --classes"
    missing = [word for word in (target.ids if target else ()) if word not in found.words.matches]
    if missing:
        return (
            f"{len(missing)} classes of the set match no node, such as {missing[0]!r}: build it "
            "without them, or give overrides"
        )
    return "" if target or found.classes else "no class is selected"


def _senses(text: str) -> Literal["all", "matched"]:
    from heldout.core.errors import UserError

    if text == "all":
        return "all"
    if text == "matched":
        return "matched"
    raise UserError(f"no senses {text!r}", fix="use all or matched")


def _show_doubts(found: SubsetMatches) -> None:
    """Doubted senses of words that the selected subsets use."""
    from heldout.data.labels import LabelSpace

    used = {word for pair in found.selected for word in pair}
    shown = [match for match in found.words.suspicious if match.word in used]
    if not shown:
        return
    meanings = {item.id: item.gloss for item in LabelSpace.load("wordnet-nodes")}
    print_table(
        "senses to look at (correct them with --overrides)",
        ["word", "node", "taken for", "meaning", "sense", "verdict"],
        [
            [
                match.word,
                match.node,
                found.words.tree.names.get(match.node, ""),
                meanings.get(match.node, "")[:60],
                f"{match.place} of {len(match.senses)}",
                match.verdict,
            ]
            for match in shown
        ],
        left=4,
    )
