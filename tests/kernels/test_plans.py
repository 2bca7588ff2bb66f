"""Bytes that are no plan are refused, or give the right answer; they never write past the workspace or a tensor."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.compat.flash_mla import flash_mla_with_kvcache, get_mla_metadata
from mla_kernels.errors import ShapeError, WorkspaceError

from tests.support.memory import guarded

LENGTHS = [4000, 100, 2600, 1]
HEADER, ENTRY = 6, 5
REQUEST, FIRST_ITEM, FIRST_SLOT, SPLITS, CHUNK = range(ENTRY)
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
ODD = (INT_MIN, -1, 0, 1, 2, 3, 64, 65, 1 << 20, INT_MAX - 1, INT_MAX)


class Step:
    """A decode whose longest requests are split, with guards around what it writes."""

    def __init__(self) -> None:
        source = torch.Generator().manual_seed(3)
        page = 64
        widths = [-(-length // page) for length in LENGTHS]
        table = torch.zeros(len(LENGTHS), max(widths), dtype=torch.int32)
        for b, width in enumerate(widths):
            table[b, :width] = torch.arange(width) + sum(widths[:b])
        self.inputs: dict[str, Any] = {
            "q": torch.randn(len(LENGTHS), 1, 2, 576, generator=source),
            "kv_cache": torch.randn(sum(widths), page, 576, generator=source) / 4,
            "block_table": table,
            "seq_lens": torch.tensor(LENGTHS, dtype=torch.int32),
        }
        self.kernel = mla.lookup(op="decode", arch="cpu", q_dtype="fp32")
        self.plan = self.kernel.plan(self.inputs["seq_lens"], num_heads=2, q_len=1)
        self.words = self.plan.buffer.view(torch.int32)
        self.bytes = self.kernel.workspace_size(**self.inputs)
        self.out, self.lse = guarded((4, 1, 2, 512), torch.float32), guarded((4, 2, 1), torch.float32)
        self.want = self.run()[0].clone()

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        workspace = torch.full((self.bytes + 4096,), 0xFF, dtype=torch.uint8)
        self.out.view.fill_(torch.nan)
        given = {"plan": self.plan, "softmax_scale": 0.05, "out": self.out.view, "lse": self.lse.view}
        results = self.kernel(**self.inputs, **given, workspace=workspace[: self.bytes])
        assert (workspace[self.bytes :] == 0xFF).all()
        self.out.assert_guards("out")
        self.lse.assert_guards("lse")
        return results

    def refused_or_right(self) -> bool:
        """Launch by what the plan holds now; say whether it was refused."""
        refusal = None
        try:
            self.run()
        except WorkspaceError as error:
            refusal = error
        want = self.want if refusal is None else torch.full_like(self.want, torch.nan)
        torch.testing.assert_close(self.out.view, want, equal_nan=True)
        assert refusal is None or refusal.argument == "plan"
        return refusal is not None

    def entries(self) -> torch.Tensor:
        """Return the plan's entries, as rows of five numbers."""
        return self.words[HEADER : HEADER + ENTRY * len(LENGTHS)].view(-1, ENTRY)


@pytest.fixture(scope="module")
def step() -> Step:
    return Step()


@pytest.fixture(autouse=True)
def restored(step: Step) -> Any:
    sound = step.words.clone()
    yield
    step.words.copy_(sound)


def test_the_plan_is_as_this_file_reads_it(step: Step) -> None:
    entries = step.entries()
    assert step.words.numel() == HEADER + entries.numel()
    assert sorted(entries[:, REQUEST].tolist()) == [0, 1, 2, 3]
    assert (entries[:, SPLITS] > 1).sum() == step.words[4] == 2


@pytest.mark.parametrize("word", range(HEADER + ENTRY * len(LENGTHS)))
def test_any_word_of_a_plan(step: Step, word: int) -> None:
    own = int(step.words[word])
    for value in {*ODD, own - 1, own + 1, own + 64, 2 * own} - {own}:
        step.words[word] = max(INT_MIN, min(INT_MAX, value))
        refused = step.refused_or_right()
        assert refused or (word >= HEADER and (word - HEADER) % ENTRY == CHUNK)
        step.words[word] = own


def test_a_request_twice(step: Step) -> None:
    """Two entries would write one request, and none the other."""
    entries = step.entries()
    for twice, left_out in ((0, 1), (1, 0), (2, 3), (0, 3)):
        own = int(entries[left_out, REQUEST])
        entries[left_out, REQUEST] = entries[twice, REQUEST]
        assert step.refused_or_right()
        entries[left_out, REQUEST] = own


def test_slots_that_two_requests_share(step: Step) -> None:
    entries = step.entries()
    for slot in (0, 1, int(entries[0, SPLITS]) - 1):
        entries[1, FIRST_SLOT] = slot
        assert step.refused_or_right()


def test_more_splits_with_items_that_agree(step: Step) -> None:
    """Splits, items and slots agree with each other, but the workspace has no room for as many."""
    entries = step.entries()
    for splits in (65, 1 << 16, INT_MAX // 4):
        sound = step.words.clone()
        more = splits - int(entries[1, SPLITS])
        entries[1, SPLITS] = splits
        entries[2:, FIRST_ITEM] += more
        entries[2:, FIRST_SLOT] += more
        step.words[5] += more
        assert step.refused_or_right()
        step.words.copy_(sound)


def test_entries_in_another_order(step: Step) -> None:
    step.entries().copy_(step.entries().flip(0))
    assert step.refused_or_right()


@pytest.mark.parametrize("batch", [511, 512, 513, 1000])
def test_many_requests(batch: int) -> None:
    """Each request is in the plan once, however many there are."""
    kernel = mla.lookup(op="decode", arch="cpu", q_dtype="fp32")
    inputs = {
        "q": torch.ones(batch, 1, 1, 576),
        "kv_cache": torch.ones(1, 2, 576),
        "block_table": torch.zeros(batch, 1, dtype=torch.int32),
        "seq_lens": torch.full((batch,), 2, dtype=torch.int32),
    }
    plan = kernel.plan(inputs["seq_lens"], num_heads=1, q_len=1)
    out, _ = kernel(**inputs, plan=plan, softmax_scale=1.0)
    assert (out == 1).all()
    entries = plan.buffer.view(torch.int32)[HEADER:].view(-1, ENTRY)
    entries[batch - 1, REQUEST] = 0
    with pytest.raises(WorkspaceError, match="plan: got a damaged plan"):
        kernel(**inputs, plan=plan, softmax_scale=1.0)


def test_lengths_of_another_number_of_requests_than_the_batch() -> None:
    """A dict may name both numbers, which a call of a kernel never does."""
    native = mla.lookup(op="decode", arch="cpu", q_dtype="fp32")._native
    shape = {"batch": 5, "q_len": 1, "num_heads": 2}
    plan = torch.zeros(native.plan_size(shape), dtype=torch.uint8)
    lengths = torch.ones(5, dtype=torch.int32)
    for number in (0, 4):
        with pytest.raises(ShapeError, match=f"seq_lens: got batch = {number}; accepts 5, as q has"):
            native.plan({**shape, "num_requests": number, "seq_lens": lengths[:number]}, plan)
    native.plan({**shape, "num_requests": 5, "seq_lens": lengths}, plan)


def test_metadata_of_flash_mla() -> None:
    """A caller's ``tile_scheduler_metadata`` is such bytes."""
    lengths = torch.tensor([4000, 3000], dtype=torch.int32)
    given = {
        "q": torch.zeros(2, 1, 4, 576).bfloat16(),
        "k_cache": torch.zeros(63, 64, 1, 576).bfloat16(),
        "block_table": torch.zeros(2, 63, dtype=torch.int32),
        "cache_seqlens": lengths,
        "head_dim_v": 512,
    }
    metadata, num_splits = get_mla_metadata(lengths, 4, 1)
    flash_mla_with_kvcache(**given, tile_scheduler_metadata=metadata, num_splits=num_splits)
    for word, value in ((HEADER + FIRST_SLOT, INT_MAX), (HEADER + REQUEST, 1), (4, INT_MAX), (5, -1)):
        damaged = metadata.clone()
        damaged.flatten()[word] = value
        with pytest.raises(
            WorkspaceError, match="tile_scheduler_metadata: got a damaged plan; accepts what plan wrote"
        ):
            flash_mla_with_kvcache(**given, tile_scheduler_metadata=damaged, num_splits=num_splits)


@pytest.mark.parametrize("max_splits", [1, 2, 5])
def test_no_request_has_more_splits_than_asked_for(step: Step, max_splits: int) -> None:
    plan = step.kernel.plan(step.inputs["seq_lens"], num_heads=2, q_len=1, max_splits=max_splits)
    entries = plan.buffer.view(torch.int32)[HEADER : HEADER + ENTRY * len(LENGTHS)].view(-1, ENTRY)
    assert entries[:, SPLITS].max() == max_splits
    assert step.kernel.workspace_size(**step.inputs, max_splits=max_splits) < step.bytes
