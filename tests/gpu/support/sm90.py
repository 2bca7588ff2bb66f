"""The attention variants of the sm90 payload, and the marks that give them to a test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.rows import Row, rows

ARCH = "sm90a"
TILE = 64
"""The tokens of a tile of KV."""
DENSE = [row for row in rows("decode") if row.arch == ARCH]
SPARSE_DECODE = [row for row in rows("sparse_decode") if row.arch == ARCH]
SPARSE_PREFILL = [row for row in rows("sparse_prefill") if row.arch == ARCH]
MIXED = (4096, 2999, 1025, 64, 0, 1, 129)


def name_of(value: object) -> str:
    """What stands for a parameter in a test's id."""
    return value.name if isinstance(value, Row) else str(value)


each = pytest.mark.parametrize("variant", DENSE, ids=name_of)
each_sparse_decode = pytest.mark.parametrize("variant", SPARSE_DECODE, ids=name_of)
each_sparse_prefill = pytest.mark.parametrize("variant", SPARSE_PREFILL, ids=name_of)


def each_with(names: str, values: Iterable[Any], variants: Iterable[Row] = DENSE) -> pytest.MarkDecorator:
    """Every variant with those of the values that it serves; the values of several names are tuples."""
    fields = names.split(", ")
    points = [value if len(fields) > 1 else (value,) for value in values]
    cases = [
        (row, *point) for row in variants for point in points if row.serves(**dict(zip(fields, point, strict=True)))
    ]
    return pytest.mark.parametrize(("variant", *fields), cases, ids=name_of)
