"""``python -m mla_kernels``."""

import sys

from mla_kernels.cli import main

sys.exit(main())
