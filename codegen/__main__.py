"""``python -m codegen COMMAND``: runs a command once the tables of the matrix have their form."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from codegen.schema import MATRIX, MatrixError, check


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 with the reasons on standard error otherwise."""
    try:
        check(MATRIX)
        # These modules read formats.toml as soon as they are imported.
        from codegen.command import run

        return run(arguments)
    except MatrixError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
