"""What importing costs: modules loaded and CPU seconds, each in fresh interpreters.

    PYTHONPATH=src python tools/import_cost.py [MODULE ...] [--repeats 5]

Without names, every package of heldout: its head, and (the row that ends in ``.*``) all its modules.
The seconds are the median over the repeats, from before the import to after it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pkgutil
import statistics
import subprocess
import sys
from pathlib import Path

# What a module needs and the machine lacks (torch, say) is not its cost: such a module is skipped.
CHILD = """
import importlib, json, sys, time
start = time.process_time()
skipped = 0
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        skipped += 1
seconds = time.process_time() - start
ours = sum(name.partition(".")[0] == "heldout" for name in sys.modules)
print(json.dumps([ours, len(sys.modules), seconds, skipped]))
"""


def packages() -> list[str]:
    """The package and all packages below it, found without importing them."""
    spec = importlib.util.find_spec("heldout")
    if spec is None or spec.origin is None:
        sys.exit("heldout is not importable: set PYTHONPATH=src")
    root = Path(spec.origin).parent
    heads = (path.parent.relative_to(root.parent).parts for path in root.rglob("__init__.py"))
    return sorted(".".join(parts) for parts in heads)


def modules(package: str) -> list[str]:
    """The package and every module in it, not those of packages below it."""
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    found = [module.name for module in pkgutil.iter_modules(places) if not module.ispkg]
    return [package, *(f"{package}.{name}" for name in found if name != "__main__")]


def cost(names: list[str], repeats: int) -> tuple[int, int, float, int]:
    """Modules of ours and of all that are loaded, median CPU seconds, modules that did not import."""
    command = [sys.executable, "-c", CHILD, *names]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for _ in range(repeats + 1)
    ][1:]  # the first one writes the bytecode
    ours, loaded, _, skipped = runs[0]
    return ours, loaded, statistics.median(run[2] for run in runs), skipped


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="MODULE", help="a module, or PACKAGE.*")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    names = given.names or [name for head in packages() for name in (head, f"{head}.*")]
    print(f"{'import':<44}{'heldout':>9}{'all':>7}{'CPU s':>9}")
    for name in names:
        imported = modules(name[:-2]) if name.endswith(".*") else [name]
        ours, loaded, seconds, skipped = cost(imported, given.repeats)
        note = f"  ({skipped} need what is not installed)" if skipped else ""
        print(f"{name:<44}{ours:>9}{loaded:>7}{seconds:>9.3f}{note}", flush=True)


if __name__ == "__main__":
    main()
