"""The distance of MetaShift's code: between places in a spectral layout of a graph.

The layout is the eigenvectors 2 to 6 of the Laplacian ``D - A``, centred, divided by the largest
coordinate; the distance is Euclidean, and from a set of several nodes the mean of theirs. It says
nothing where the graph is not connected: the eigenvectors of the eigenvalue 0 are then any mixture
of the parts, and every value changes with every node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, UserError

Solver = Literal["eig", "eigh"]
FloatArray = npt.NDArray[np.float64]
DIMENSIONS = 5


def spectral_positions(
    weights: FloatArray, *, dimensions: int = DIMENSIONS, solver: Solver = "eig"
) -> FloatArray:
    """Places of the nodes, (n, dimensions), as networkx lays them out below 500 nodes.

    ``weights``  (n, n), symmetric, zero diagonal
    ``solver``   ``eig`` as the original; ``eigh`` knows that the matrix is symmetric. They agree
                 where the graph is connected.
    """
    if dimensions < 1:
        raise UserError(f"{dimensions} dimensions", fix="give 1 or more")
    if len(weights) < 3:
        raise NotApplicable(
            f"a graph of {len(weights)} nodes has no spectral layout",
            fix="use the default distance, or a smaller minimum",
        )
    laplacian = np.diag(weights.sum(axis=1)) - weights
    if solver == "eigh":
        values, vectors = np.linalg.eigh(laplacian)
    elif solver == "eig":
        found = np.linalg.eig(laplacian)
        values, vectors = np.real(found.eigenvalues), np.real(found.eigenvectors)
    else:
        raise UserError(f"no solver {solver!r}", fix="use eig or eigh")
    places: FloatArray = vectors[:, np.argsort(values)[1 : dimensions + 1]]
    places = places - places.mean(axis=0)
    largest = np.abs(places).max()
    return places / largest if largest > 0 else places


def published_distance(
    weights: FloatArray,
    a: Sequence[int],
    b: Sequence[int],
    *,
    dimensions: int = DIMENSIONS,
    solver: Solver = "eig",
) -> float:
    """The mean Euclidean distance between the nodes of ``a`` and those of ``b``."""
    places = spectral_positions(weights, dimensions=dimensions, solver=solver)
    apart = places[list(a), None, :] - places[None, list(b), :]
    return float(np.sqrt(np.square(apart).sum(axis=2)).mean())
