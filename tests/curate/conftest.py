"""Makes ``recipe_examples`` importable by its plain name, here and in the processes that build."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
