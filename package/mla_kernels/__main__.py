"""``python -m mla_kernels``: the same as ``mla-kernels``."""

import sys

from mla_kernels.diagnostics.cli import main

sys.exit(main())
