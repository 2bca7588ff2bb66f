"""The switch that makes plans and launches batch-invariant."""

from __future__ import annotations

import os
import subprocess
import sys

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import InvalidArgumentError
from mla_kernels.kernels import invariance

from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.sparse import SparseDecode

DENSE = "cpu_decode_qbf16_kvbf16_obf16_direct_split"
SPARSE = "cpu_sparse_decode_qbf16_kvbf16_obf16_direct_split"
LONG = (9000, 40, 700)
"""The first request is split otherwise where it is alone, unless the switch is on."""


def test_one_call_gives_what_a_plan_that_asks_for_it_gives() -> None:
    problem = Decode(DENSE, lengths=LONG)
    inputs = problem.tensors()
    asked = Decode(DENSE, lengths=LONG, batch_invariant=True).run(inputs)
    usual = mla.decode(**inputs, **problem.scalars())
    with mla.batch_invariant():
        switched = mla.decode(**inputs, **problem.scalars())
    for got, want in zip(switched, asked, strict=True):
        assert_same_bytes("a result", got, want)
    assert not torch.equal(usual[0], asked[0]), "these lengths show nothing: both have the same splits"


def test_a_launch_without_a_plan() -> None:
    problem = Decode(DENSE, lengths=LONG)
    inputs = problem.tensors()
    with mla.batch_invariant():
        out, _ = problem.kernel()(**inputs, **problem.scalars())
    assert_same_bytes("out", out, Decode(DENSE, lengths=LONG, batch_invariant=True).run(inputs)[0])


def test_plans_of_the_block_are_invariant_and_others_are_not() -> None:
    problem = Decode(DENSE, lengths=LONG)
    kernel, seq_lens = problem.kernel(), problem.tensors()["seq_lens"]
    with mla.batch_invariant():
        assert kernel.plan(seq_lens).batch_invariant
        with mla.batch_invariant(enable=False):
            assert not kernel.plan(seq_lens).batch_invariant
        assert kernel.plan(seq_lens).batch_invariant
    assert not kernel.plan(seq_lens).batch_invariant


def test_an_error_in_the_block_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), mla.batch_invariant():
        raise ZeroDivisionError
    assert not invariance.enabled


def test_sparse_rows_are_not_split() -> None:
    problem = SparseDecode(SPARSE, topk=4096, num_pages=80, batch=1)
    inputs, kernel = problem.tensors(), mla.lookup(**problem.config())
    one = kernel(**inputs, **problem.scalars(), max_splits=1)
    usual = kernel(**inputs, **problem.scalars())
    with mla.batch_invariant():
        switched = kernel(**inputs, **problem.scalars())
    for got, want in zip(switched, one, strict=True):
        assert_same_bytes("a result", got, want)
    assert not torch.equal(usual[0], one[0]), "this row shows nothing: it is not split in any case"


@pytest.mark.parametrize("enable", ["yes", None, 2])
def test_what_is_no_flag_is_refused(enable: object) -> None:
    with pytest.raises(InvalidArgumentError, match="enable"), mla.batch_invariant(enable):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("value", "said"), [("1", "True"), ("0", "False"), ("", "False"), ("on", "got 'on'; accepts 0 or 1")]
)
def test_the_environment_variable(value: str, said: str) -> None:
    code = "from mla_kernels.kernels import invariance; print(invariance.enabled)"
    environment = {**os.environ, invariance.VARIABLE: value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert said in done.stdout + done.stderr
