"""Builds, measures and releases wheels; only nox calls it.

``package/tools``, which every build runs, is put on the path, because its reader of machine code is used here too.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "package" / "tools"))
