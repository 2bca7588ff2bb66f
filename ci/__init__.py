"""Build, check and publish wheels; called by nox only.

``package/tools``, which every build runs, is put on the path: what reads machine code there reads it here too.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "package" / "tools"))
