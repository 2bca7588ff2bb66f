"""``python -m mla_kernels``."""

import sys

from mla_kernels.diagnostics.cli import main

sys.exit(main())
