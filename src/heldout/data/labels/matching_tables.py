"""What matching found, as tables a person can read, mend and hand back."""

from __future__ import annotations

import json
from collections.abc import Mapping

from heldout.core.files import csv_text
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.map_files import label_map_to_dict
from heldout.data.labels.matching import SubsetMatches, WordMatch

WORDS = ("word", "node", "name", "place", "senses", "verdict", "leaves", "meaning")
DOUBTS = ("word", "node", "name", "place", "verdict", "meaning", "instead", "instead_meaning")


def matching_tables(
    found: SubsetMatches, *, source: LabelSpace | None, target: LabelSpace | None = None
) -> dict[str, str]:
    """File name to text.

    ``words.csv``       every matched word: its node, which of its senses that is, the verdict
    ``suspicious.csv``  doubted matches, with other senses of the word that are in the tree. With
                        ``node`` mended (or emptied) it is a file of overrides.
    ``unmatched.txt``   words without a node
    ``classes.csv``     selected classes and the leaves that are right for each
    ``subsets.txt``     selected subsets, one a line
    ``label_map.json``  hierarchical correctness for ``heldout score --label-map``, where ``source``
                        is the label space whose classes the leaves are, and ``target`` that of a
                        test set (without it, the selected classes)
    """
    words = found.words
    tree, glosses = words.tree, _glosses()

    def name(node: str) -> str:
        return tree.names.get(node, node)

    def instead(match: WordMatch) -> list[str]:
        return [s for s in match.senses if s != match.node and s in tree] if match.place else []

    matches = list(words.matches.values())
    tables = {
        "words.csv": csv_text(
            WORDS,
            [
                (m.word, m.node, name(m.node), m.place, len(m.senses), m.verdict,
                 len(tree.leaves_under(m.node)), glosses.get(m.node, ""))
                for m in matches
            ],
        ),
        "suspicious.csv": csv_text(
            DOUBTS,
            [
                (m.word, m.node, name(m.node), m.place, m.verdict, glosses.get(m.node, ""),
                 "|".join(instead(m)),
                 "|".join(f"{name(s)}: {glosses.get(s, '')}" for s in instead(m)))
                for m in words.suspicious
            ],
        ),
        "unmatched.txt": "".join(f"{word}\n" for word in words.unmatched),
        "classes.csv": csv_text(
            ("class", "node", "name", "accepted", "leaves"),
            [
                (word, words.matches[word].node, name(words.matches[word].node), len(leaves),
                 "|".join(leaves))
                for word, leaves in found.accepted.items()
            ],
        ),
        "subsets.txt": "".join(f"{name}\n" for name in found.names),
    }  # fmt: skip
    if source is not None and (found.classes or target is not None):
        made = found.label_map(source, name="matched-classes", target=target)
        tables["label_map.json"] = json.dumps(label_map_to_dict(made), indent=1) + "\n"
    return tables


def _glosses() -> Mapping[str, str]:
    return {item.id: item.gloss for item in LabelSpace.load("wordnet-nodes")}
