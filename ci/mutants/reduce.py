"""Renders a payload with some of its units only: ``python -m ci.mutants.reduce sm90 UNIT...`` in a scratch copy.

Variants that need no unit of their own stay. The library, its registry and its manifest then agree with each other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from codegen import sync
from codegen.load import load
from codegen.render import render
from codegen.validate import checked


def main(payload: str, units: Sequence[str]) -> None:
    """Write ``generated/`` without the payload's other units; with all of them if none is named."""
    matrix = load()
    variants = checked(matrix)
    archs = {arch.name for arch in matrix.archs.values() if arch.payload == payload}
    unknown = set(units) - {variant.unit for variant in variants if variant.arch in archs}
    if unknown:
        raise SystemExit(f"{payload} has no unit {', '.join(sorted(unknown))}")
    kept = [v for v in variants if not units or v.arch not in archs or not v.baked or v.unit in units]
    sync.write(render(matrix, kept))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
