"""The attention variants of the sm90 payload, and with which shapes each of dense decode is tested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mla_kernels as mla
import pytest

from tests.gpu.conftest import arch_name, refuse
from tests.support.rows import Row, rows

ARCH = "sm90a"
DENSE = [row for row in rows("decode") if row.arch == ARCH]
SPARSE_DECODE = [row for row in rows("sparse_decode") if row.arch == ARCH]
SPARSE_PREFILL = [row for row in rows("sparse_prefill") if row.arch == ARCH]
MIXED = (4096, 2999, 1025, 64, 0, 1, 129)

each = pytest.mark.parametrize("variant", DENSE, ids=[row.name for row in DENSE])


def each_with(names: str, values: Iterable[Any], variants: Iterable[Row] = DENSE) -> pytest.MarkDecorator:
    """Every variant with those of the values that it serves; the values of several names are tuples."""
    fields = names.split(", ")
    points = [value if len(fields) > 1 else (value,) for value in values]
    cases = [
        (row, *point) for row in variants for point in points if row.serves(**dict(zip(fields, point, strict=True)))
    ]
    return pytest.mark.parametrize(("variant", *fields), cases, ids=name_of)


def name_of(value: object) -> str:
    """Of a parameter in a test's id."""
    return value.name if isinstance(value, Row) else str(value)


@pytest.fixture(autouse=True)
def hopper() -> None:
    """Only where a Hopper payload is under test."""
    if arch_name() != ARCH:
        pytest.skip(f"not run: {ARCH}: the arch under test is {arch_name()}")
    if not mla.variants(arch=ARCH, op="decode"):
        refuse(f"{ARCH}: no payload with decode is installed")
