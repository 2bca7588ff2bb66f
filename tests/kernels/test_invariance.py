"""Runs, thread counts, batches and processes give the same bytes, and every instruction set the right answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import InvalidArgumentError
from mla_kernels.kernels import invariance

from tests.support.compare import assert_same_bytes
from tests.support.invariance import check_batch_invariance
from tests.support.problems import Decode
from tests.support.rows import Row
from tests.support.sparse import SparseDecode, SparsePrefill

INSTRUCTION_SETS = {
    "baseline": set[str](),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx512_bf16": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"},
    "amx_bf16": {"avx512f", "avx512_bf16", "amx_tile", "amx_bf16"},
}
"""The processor must offer these features for each value of MLA_KERNELS_CPU_ISA."""


@cache
def work(task: str, **variables: str) -> dict[str, str]:
    """Run a task in a process of its own and return its digests."""
    paths = [str(Path(__file__).parents[2]), *(path for path in sys.path if path)]
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.worker", task],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{task} {variables}: exit {done.returncode}\n{done.stderr[-4000:]}"
    digests: dict[str, str] = json.loads(done.stdout)
    return digests


def needs(isa: str) -> None:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    missing = INSTRUCTION_SETS[isa] - set(flags.split())
    if missing:
        pytest.skip(f"not run: cpu with MLA_KERNELS_CPU_ISA={isa}: this processor lacks {', '.join(sorted(missing))}")


@pytest.mark.slow
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_instruction_set_is_right(isa: str) -> None:
    needs(isa)
    assert len(work("attention", MLA_KERNELS_CPU_ISA=isa)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_instruction_set_writes_the_same_caches(isa: str) -> None:
    needs(isa)
    got, want = work("caches", MLA_KERNELS_CPU_ISA=isa), work("caches", MLA_KERNELS_CPU_ISA="baseline")
    exact = want.keys() - {"merge_states"}
    assert [name for name in exact if got[name] != want[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("task", ["attention", "caches"])
@pytest.mark.parametrize("threads", ["2", "5"])
def test_threads_do_not_change_a_bit(task: str, threads: str) -> None:
    one = work(task, MLA_KERNELS_CPU_THREADS="1")
    many = work(task, MLA_KERNELS_CPU_THREADS=threads)
    assert one.keys() == many.keys()
    assert [name for name in one if one[name] != many[name]] == []


@pytest.mark.parametrize("task", ["fork", "pool"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_forked_children_launch(task: str, threads: str) -> None:
    digests = work(task, MLA_KERNELS_CPU_THREADS=threads)
    assert set(digests.values()) == {digests["parent"]}


@pytest.mark.op("decode")
@pytest.mark.parametrize("max_splits", [None, 4])
def test_decode_repeats(variant: Row, max_splits: int | None) -> None:
    problem = Decode(variant.name, lengths=(700, 20, 0), q_len=2, max_splits=max_splits)
    first = problem.run()
    for _ in range(3):
        for name, got, want in zip(("out", "lse"), problem.run(), first, strict=True):
            assert_same_bytes(name, got, want, problem.reproduce())


@pytest.mark.op("sparse_decode")
def test_sparse_decode_repeats(variant: Row) -> None:
    problem = SparseDecode(variant.name, topk=400, q_len=2)
    first = problem.run()
    for _ in range(3):
        for name, got, want in zip(("out", "lse", "max_logits"), problem.run(), first, strict=True):
            assert_same_bytes(name, got, want, problem.reproduce())


@pytest.mark.op("sparse_prefill")
def test_sparse_prefill_repeats(variant: Row) -> None:
    import mla_kernels as mla

    inputs = SparsePrefill(variant.name, topk=300).tensors()
    first = mla.sparse_prefill(**inputs, softmax_scale=0.1)
    for got, want in zip(mla.sparse_prefill(**inputs, softmax_scale=0.1), first, strict=True):
        assert_same_bytes("output", got, want)


@pytest.mark.op("decode")
@pytest.mark.parametrize("max_splits", [None, 3])
def test_batch_invariance(variant: Row, max_splits: int | None) -> None:
    """A request gives the same bytes alone, in a batch, and at another place of it, with batch_invariant plans."""
    lengths = (14000, 333, 1, 4200, 64, 700)  # plans that balance a batch split the long ones otherwise than alone
    company = Decode(variant.name, lengths=lengths, num_heads=16, batch_invariant=True, max_splits=max_splits)
    check_batch_invariance(company, ([0], [1], [3], [5], [3, 0], [5, 4, 3, 2, 1, 0], [1] * 9))


@pytest.mark.op("decode", where=lambda row: row.q_dtype != "fp16")
def test_threads_of_python_may_launch_at_once(variant: Row) -> None:
    problems = [
        Decode(variant.name, lengths=(500 + 7 * i, 20, 0), q_len=1 + i % 2, num_heads=9 + i, seed=i) for i in range(4)
    ]
    inputs = [problem.tensors() for problem in problems]
    want = [problem.launch(given) for problem, given in zip(problems, inputs, strict=True)]

    def repeat(i: int) -> None:
        for _ in range(12):
            for name, got, expected in zip(("out", "lse"), problems[i].launch(inputs[i]), want[i], strict=True):
                assert_same_bytes(name, got, expected, problems[i].reproduce())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(repeat, range(4)))


DENSE = "cpu_decode_qbf16_kvbf16_obf16_direct_split"
SPARSE = "cpu_sparse_decode_qbf16_kvbf16_obf16_direct_split"
LONG = (9000, 40, 700)
"""The first request is split otherwise where it is alone, unless the switch is on."""


def test_one_call_gives_what_a_plan_that_asks_for_it_gives() -> None:
    problem = Decode(DENSE, lengths=LONG)
    inputs = problem.tensors()
    asked = Decode(DENSE, lengths=LONG, batch_invariant=True).run(inputs)
    usual = mla.decode(**inputs, **problem.scalars(), **problem.options)
    with mla.batch_invariant():
        switched = mla.decode(**inputs, **problem.scalars(), **problem.options)
    for got, want in zip(switched, asked, strict=True):
        assert_same_bytes("a result", got, want)
    # Outputs of other splits may round to the same bf16, as on an AMD EPYC; the LSE is fp32.
    same = [torch.equal(got, want) for got, want in zip(usual, asked, strict=True)]
    assert not all(same), "these lengths show nothing: both have the same splits"


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


def test_a_block_that_one_thread_leaves_holds_for_another() -> None:
    entered, left = threading.Barrier(2, timeout=60), threading.Event()
    found: list[bool] = []

    def second() -> None:
        entered.wait()
        with mla.batch_invariant():
            entered.wait()
            assert left.wait(60)
            found.append(invariance.enabled)

    thread = threading.Thread(target=second)
    thread.start()
    with mla.batch_invariant():
        entered.wait()
        entered.wait()
    left.set()
    thread.join()
    assert found == [True]
    assert not invariance.enabled


def test_a_plan_is_refreshed_by_the_switch_as_it_was_made() -> None:
    """As engines refresh theirs, which say ``batch_invariant=False``; one that was made before keeps its splits."""
    problem = Decode(DENSE, lengths=LONG)
    kernel, seq_lens = problem.kernel(), problem.tensors()["seq_lens"]
    before = kernel.plan(seq_lens, batch_invariant=False)
    with mla.batch_invariant():
        inside = kernel.plan(seq_lens, batch_invariant=False)
        assert kernel.plan(seq_lens, batch_invariant=False, out=inside).batch_invariant
        assert not kernel.plan(seq_lens, batch_invariant=False, out=before).batch_invariant
        with pytest.raises(InvalidArgumentError, match="a plan of batch_invariant True"):
            kernel.plan(seq_lens, batch_invariant=True, out=before)
    with pytest.raises(InvalidArgumentError, match="a plan of batch_invariant False"):
        kernel.plan(seq_lens, batch_invariant=False, out=inside)


def test_a_workspace_is_as_large_as_the_switch_needs_it() -> None:
    problem = Decode(DENSE, lengths=LONG)
    inputs, kernel = problem.tensors(), problem.kernel()
    numbers = {"q": inputs["q"], "kv_cache": inputs["kv_cache"], "block_table": inputs["block_table"]}
    usual = kernel.workspace_size(**numbers)
    with mla.batch_invariant():
        size = kernel.workspace_size(**numbers)
        assert usual == kernel.workspace_size(**numbers, batch_invariant=False), (
            "as a plan needs it that was made before"
        )
        workspace = torch.empty(size, dtype=torch.uint8)
        kernel(**inputs, **problem.scalars(), plan=kernel.plan(inputs["seq_lens"]), workspace=workspace)
    assert size == kernel.workspace_size(**numbers, batch_invariant=True)
    assert size != usual, "these lengths show nothing: both need as much"


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
