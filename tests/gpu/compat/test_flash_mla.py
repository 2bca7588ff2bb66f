"""FlashMLA's functions on a GPU: the checks of the CPU, longer requests, and CUDA graphs over either metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.compat.flash_mla import flash_mla_with_kvcache, get_mla_metadata
from mla_kernels.errors import DeviceError, DTypeError, ShapeError
from torch import Tensor

from tests.gpu.support.availability import require_op
from tests.gpu.support.tensors import set_all_bits
from tests.support import memory
from tests.support.flash_mla import (
    CONVENTIONS,
    HEADS,
    QUERY_TOKENS,
    FlashMla,
    ahead,
    check_object_serves_layers_and_steps,
    check_plans_are_of_rows,
)
from tests.support.rows import rows

MIXED = (4096, 2999, 1025, 64, 0, 1, 129)

each_convention = pytest.mark.parametrize("convention", CONVENTIONS.values(), ids=CONVENTIONS)


@pytest.fixture(params=["bf16", "fp16"])
def variant(arch: str, request: pytest.FixtureRequest) -> str:
    """A variant with the element type of FlashMLA's kernels, which a lookup by that type prefers."""
    require_op(arch, "decode")
    config: dict[str, Any] = {"op": "decode", "arch": arch, "q_dtype": request.param}
    return mla.lookup(**config, kv_layout="paged", page_size=128).variant.name


@each_convention
@pytest.mark.parametrize(("num_heads_q", "num_heads_k"), [*HEADS, (128, 1)])
@pytest.mark.parametrize("s_q", QUERY_TOKENS)
@pytest.mark.parametrize("causal", [False, True])
def test_heads_and_query_tokens(
    variant: str, convention: Any, num_heads_q: int, num_heads_k: int, s_q: int, causal: bool
) -> None:
    FlashMla(variant, num_heads_q=num_heads_q, num_heads_k=num_heads_k, s_q=s_q, causal=causal).check(convention)


@pytest.mark.parametrize("num_heads_k", [1, 2])
def test_strides(variant: str, num_heads_k: int) -> None:
    FlashMla(variant, num_heads_k=num_heads_k, s_q=2, causal=True, strided=True).check()


@pytest.mark.parametrize("lengths", [(0,), (0, 0, 0), (1,), (20000, 100, 0), MIXED, MIXED * 30, ()])
def test_lengths(variant: str, lengths: tuple[int, ...]) -> None:
    FlashMla(variant, lengths=lengths, s_q=2, causal=True).check()


def test_an_object_serves_layers_and_steps(variant: str) -> None:
    check_object_serves_layers_and_steps(variant)


def test_all_variants_plan_alike(variant: str, arch: str) -> None:
    check_plans_are_of_rows([row.name for row in rows("decode") if row.arch == arch])


@pytest.mark.parametrize("batch", [1, 33, 100])
@pytest.mark.parametrize("rows_of_a_request", [16, 64, 128, 512])
def test_metadata_fits_a_row_for_each_multiprocessor(variant: str, batch: int, rows_of_a_request: int) -> None:
    """Callers of FlashMLA reserve that many rows for a CUDA graph."""
    lengths = torch.full((batch,), 1000, dtype=torch.int32, device="cuda")
    meta, num_splits = get_mla_metadata(lengths, rows_of_a_request, 1)
    assert (meta.device, num_splits.device) == (lengths.device, lengths.device)
    assert meta.size(0) <= torch.cuda.get_device_properties(lengths.device).multi_processor_count


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("tile_scheduler_metadata", lambda meta: meta.cpu(), DeviceError),
        ("tile_scheduler_metadata", lambda meta: meta.long(), DTypeError),
        ("tile_scheduler_metadata", lambda meta: torch.cat([meta, meta[:0].new_zeros(2, 8)]), ShapeError),
        ("num_splits", lambda num_splits: num_splits.cpu(), DeviceError),
        ("num_splits", lambda num_splits: num_splits[:-1], ShapeError),
    ],
)
def test_tensors_that_are_no_metadata_of_the_call(
    variant: str, name: str, change: Callable[[Tensor], Tensor], error: type[Exception]
) -> None:
    problem = FlashMla(variant)
    given = problem.given()
    given |= ahead(problem, given)
    with pytest.raises(error, match=f"{name}: got"):
        flash_mla_with_kvcache(**given | {name: change(given[name])})
    problem.compare(*flash_mla_with_kvcache(**given))


def steps(variant: str) -> list[tuple[FlashMla, dict[str, Any]]]:
    """Problems whose tensors have the same shapes, and these tensors."""
    found = []
    for seed, lengths in enumerate([(3000, 500, 64), (1, 3050, 700), (0, 0, 3100)]):
        problem = FlashMla(variant, lengths=lengths, num_heads_q=32, num_heads_k=2, s_q=2, causal=True, seed=seed)
        problem = replace(problem, spare=40 - sum(problem.heads.pages))
        given = problem.given()
        table = torch.full((3, 80), memory.UNUSED_PAGE, dtype=torch.int32, device="cuda")
        table[:, : given["block_table"].shape[1]] = given["block_table"]
        found.append((problem, given | {"block_table": table}))
    return found


def check_replays(
    problems: list[tuple[FlashMla, dict[str, Any]]],
    metadata: Callable[[Tensor], dict[str, Any]],
    refresh: Callable[..., None],
) -> None:
    """A graph captured over the first problem's lengths is replayed over those of all."""
    given = {name: value.clone() if isinstance(value, Tensor) else value for name, value in problems[0][1].items()}
    flash_mla_with_kvcache(**given, **metadata(given["cache_seqlens"]))  # loads the kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = flash_mla_with_kvcache(**given, **metadata(given["cache_seqlens"]))
    for problem, tensors in [*problems, problems[0]]:
        for name, tensor in tensors.items():
            if isinstance(tensor, Tensor):
                given[name].copy_(tensor)
        set_all_bits(out, lse)
        refresh(problem, given["cache_seqlens"])
        graph.replay()
        torch.cuda.synchronize()
        problem.compare(out, lse)


def test_a_graph_reads_buffers_into_which_metadata_is_copied(variant: str) -> None:
    problems = steps(variant)
    scheduled = torch.full((500, 8), -1, dtype=torch.int32, device="cuda")
    splits = torch.full((64,), -1, dtype=torch.int32, device="cuda")
    first, lengths = problems[0][0], problems[0][1]["cache_seqlens"]
    parts = first.metadata(lengths)[0].size(0)

    def refresh(problem: FlashMla, lengths: Tensor) -> None:
        meta, num_splits = problem.metadata(lengths)
        scheduled[:parts].copy_(meta)
        splits[:4].copy_(num_splits)

    refresh(first, lengths)
    buffers = {"tile_scheduler_metadata": scheduled[:parts], "num_splits": splits[:4]}
    check_replays(problems, lambda _: buffers, refresh)


def test_a_graph_fills_an_object(variant: str) -> None:
    """The plan is made in the graph, so that a replay plans for its own lengths."""
    check_replays(
        steps(variant), lambda _: {"tile_scheduler_metadata": get_mla_metadata()[0]}, lambda problem, lengths: None
    )


def test_a_graph_does_not_read_the_tensor_that_an_object_is(variant: str) -> None:
    """The first result of ``get_mla_metadata`` with arguments, made before the graph and passed alone."""
    problems = steps(variant)
    made = [problems[0][0].metadata(problems[0][1]["cache_seqlens"])[0] for _ in range(2)]
    given = iter(made)

    def overwrite(*_: Any) -> None:
        for meta in made:
            meta.fill_(-1)

    check_replays(problems, lambda _: {"tile_scheduler_metadata": next(given)}, overwrite)
