"""What vLLM's writers leave in a cache of DeepSeek V4, V4.1 and of models without a rope part, byte by byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mla_kernels.compat.vllm import concat_and_cache_mla, quantize_and_insert_k_cache
from mla_kernels.errors import DTypeError, InvalidArgumentError, ShapeError, StrideError, UnsupportedError
from torch import Tensor

from tests.runtime.compat.vllm_rows import BLOCK_BYTES, in_e4m3, insert
from tests.support.compare import assert_same_bytes

POISON = 0xA5
RECORDS = [584, 528, 288]


def blocks(num_blocks: int, block_size: int, bytes_per_token: int, pad: int = 1) -> Tensor:
    """Poisoned blocks [num_blocks, block_bytes], padded and then with ``pad`` more units of padding."""
    unit = BLOCK_BYTES[bytes_per_token]
    units = -(-block_size * bytes_per_token // unit) + pad
    return torch.full((num_blocks, unit * units), POISON, dtype=torch.uint8)


def check(k: Tensor, slots: Tensor, block_size: int, bytes_per_token: int) -> Tensor:
    """Write through the adapter into blocks and into records; compare all memory with the reference, and return it."""
    num_blocks = int(slots.max()) // block_size + 2
    want = blocks(num_blocks, block_size, bytes_per_token)
    insert(want, k[: len(slots)], slots, block_size, bytes_per_token)
    for as_records in (False, True):
        memory = blocks(num_blocks, block_size, bytes_per_token)
        shape, strides = (num_blocks, block_size, bytes_per_token), (memory.stride(0), bytes_per_token, 1)
        cache = memory.as_strided(shape, strides) if as_records else memory
        quantize_and_insert_k_cache(k, cache, slots, block_size, bytes_per_token=bytes_per_token)
        assert_same_bytes("memory", memory, want)
    return want


def with_largest(magnitudes: Tensor, group: int) -> Tensor:
    """Rows bf16 [n, 512] whose groups have these greatest magnitudes, each at another place; zeros fill the rest."""
    per_row = 448 // group if group == 64 else 512 // group
    largest = torch.nn.functional.pad(magnitudes, (0, -len(magnitudes) % per_row))
    groups = (torch.rand(len(largest), group, generator=torch.Generator().manual_seed(0)) * 2 - 1) * largest[:, None]
    place = torch.arange(len(largest))
    groups[place, place * 5 % group] = largest
    columns = groups.view(-1, group * per_row)
    return torch.nn.functional.pad(columns, (0, 512 - columns.shape[1])).bfloat16()


@pytest.mark.parametrize("bytes_per_token", RECORDS)
@pytest.mark.parametrize("block_size", [1, 3, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows(bytes_per_token, block_size, dtype):
    """Rows of magnitudes from 2^-13 to 2^14, with padded rows behind them; slots that are negative are skipped."""
    source = torch.Generator().manual_seed(block_size)
    k = torch.randn(9, 512, generator=source) * torch.exp2(torch.randint(-13, 12, (9, 512), generator=source))
    slots = torch.tensor([5, -1, 130, 0, -7, 64, 1])
    memory = check(k.to(dtype), slots, block_size, bytes_per_token)
    assert (memory == POISON).any()


def test_no_token():
    for slots in (torch.zeros(0, dtype=torch.int64), torch.full((4,), -1)):
        for bytes_per_token in RECORDS:
            memory = blocks(2, 4, bytes_per_token)
            quantize_and_insert_k_cache(
                torch.ones(4, 512).bfloat16(), memory, slots, 4, bytes_per_token=bytes_per_token
            )
            assert (memory == POISON).all()


@pytest.mark.parametrize(("bytes_per_token", "group"), [(584, 64), (528, 32)])
def test_every_power_of_two(bytes_per_token, group):
    """The greatest magnitude of a group is 448 times each power, and the next number of bf16 after it."""
    exact = 448 * torch.exp2(torch.arange(-16, 120).double()).float()
    after = (exact.bfloat16().view(torch.int16) + 1).view(torch.bfloat16).float()
    k = with_largest(torch.cat([exact, after]), group)
    memory = check(k, torch.arange(len(k)), 4, bytes_per_token)
    scales = memory[:, 4 * 576 :] if bytes_per_token == 584 else memory[:, : 4 * 528].reshape(-1, 528)[:, 512:]
    assert set(range(114, 248)) <= set(scales.flatten().tolist())


def test_every_e4m3_scale():
    """The greatest magnitude of a group of four bits is 6 times each scale that is not NaN, 0 included."""
    scales = torch.arange(127, dtype=torch.uint8)
    k = with_largest(6 * scales.view(torch.float8_e4m3fn).float(), 16)
    memory = check(k, torch.arange(len(k)), 4, 288)
    written = memory[:, : 4 * 288].reshape(-1, 288)[: len(k), 256:]
    assert set(written.flatten().tolist()) == set(range(1, 127))


def test_ties_of_four_bits_go_to_even_codes():
    k = torch.zeros(1, 512)
    k[0, :16] = torch.tensor([6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -6])
    memory = check(k.bfloat16(), torch.zeros(1, dtype=torch.int64), 1, 288)
    assert memory[0, :8].tolist() == [0x07, 0x22, 0x44, 0x66, 0xA8, 0xCA, 0xEC, 0xFE]


@pytest.mark.parametrize("bytes_per_token", RECORDS)
@pytest.mark.parametrize("odd", [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3e38, 1e-30])
@pytest.mark.parametrize("everywhere", [False, True])
def test_odd_numbers(bytes_per_token, odd, everywhere):
    """NaN stays NaN, infinities become the largest element of the largest scale, and zeros have the least scale."""
    k = torch.randn(2, 512, generator=torch.Generator().manual_seed(3)).bfloat16()
    if everywhere:
        k[:] = odd
    else:
        k[0, ::70] = odd
    check(k, torch.tensor([3, 0]), 2, bytes_per_token)


def no_rope(width: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.full((3, 4, width * dtype.itemsize), POISON, dtype=torch.uint8).view(dtype)


SLOTS = torch.tensor([5, -1, 0, 11])
K_PE = torch.empty(6, 0, dtype=torch.bfloat16)
"""What ``k_pe.squeeze(1)`` is of a model whose ``qk_rope_head_dim`` is 0."""


def latents() -> Tensor:
    """Six latents bf16, of which the last two are padding; the third has a group of zeros, an infinity and a NaN."""
    rows = torch.randn(6, 512, generator=torch.Generator().manual_seed(4)) * 30
    rows[2, :128], rows[2, 130], rows[2, 300] = 0.0, torch.inf, torch.nan
    return rows.bfloat16()


@pytest.mark.parametrize("width", [528, 656])
def test_fp8_ds_mla_without_rope(width):
    """Four float32 scales that are powers of two, and a rope part of zeros where there is room for one."""
    kv_c, cache, want = latents(), no_rope(width), no_rope(width)
    concat_and_cache_mla(kv_c, K_PE, cache, SLOTS, "fp8_ds_mla", torch.ones(1))
    for row, slot in zip(kv_c[:4], SLOTS.tolist(), strict=True):
        if slot >= 0:
            codes, exponents = in_e4m3(row, 128)
            scales = torch.exp2(exponents.double()).float().view(torch.uint8)
            rope = torch.zeros(width - 528, dtype=torch.uint8)
            want[slot // 4, slot % 4] = torch.cat([codes, scales, rope])
    assert_same_bytes("cache", cache, want)


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "bfloat16"])
def test_bf16_without_rope(kv_cache_dtype):
    kv_c, cache, want = latents(), no_rope(512, torch.bfloat16), no_rope(512, torch.bfloat16)
    concat_and_cache_mla(kv_c, K_PE, cache, SLOTS, kv_cache_dtype, torch.ones(1))
    want.view(12, 512)[[5, 0, 11]] = kv_c[[0, 2, 3]]
    assert_same_bytes("cache", cache, want)


@pytest.mark.parametrize("kv_cache_dtype", ["fp8", "fp8_e4m3"])
def test_e4m3_without_rope(kv_cache_dtype):
    kv_c, cache, want = latents(), no_rope(512), no_rope(512)
    concat_and_cache_mla(kv_c, K_PE, cache, SLOTS, kv_cache_dtype, torch.tensor([0.25]))
    stored = (kv_c.float() / 0.25).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    want.view(12, 512)[[5, 0, 11]] = stored[[0, 2, 3]]
    assert_same_bytes("cache", cache, want)


def concat(width: int, rope: int, kv_cache_dtype: str = "fp8_ds_mla") -> Callable[[], None]:
    given = torch.zeros(1, 512).bfloat16(), torch.zeros(1, rope).bfloat16(), no_rope(width), torch.zeros(1).long()
    return lambda: concat_and_cache_mla(*given, kv_cache_dtype, torch.ones(1))


def put(**changes: object) -> Callable[[], None]:
    given = {"k": torch.zeros(1, 512).bfloat16(), "k_cache": blocks(2, 64, 584), "slot_mapping": torch.zeros(1).long()}
    return lambda: quantize_and_insert_k_cache(**given | changes)  # type: ignore[arg-type]


REFUSED: dict[str, tuple[Callable[[], None], type[InvalidArgumentError], str]] = {
    "rope for rows without it": (concat(528, 64), ShapeError, r"k_pe: got shape \[1, 64\]; accepts \[num_tokens, 0\]"),
    "half a rope part": (concat(656, 32), ShapeError, r"k_pe: got shape \[1, 32\]; accepts \[num_tokens, 64\]"),
    "no rope for e4m3 with it": (concat(576, 0, "fp8"), ShapeError, r"k_pe: got shape \[1, 0\]; accepts \[num_tokens"),
    "records of V4 by the other writer": (
        concat(584, 64),
        ShapeError,
        "kv_cache: got rows of 584 bytes; accepts rows of 656 bytes, or of 528 without a rope part; quantize_and_",
    ),
    "bytes for floats": (concat(528, 0, "auto"), DTypeError, "kv_cache: got uint8; accepts the type of kv_c"),
    "width of k": (put(k=torch.zeros(1, 576).bfloat16()), ShapeError, r"k: got shape \[1, 576\]; accepts .*512"),
    "type of k": (put(k=torch.zeros(1, 512).int()), DTypeError, "k: got int32; accepts"),
    "rows of k": (
        put(slot_mapping=torch.zeros(2).long()),
        ShapeError,
        "slot_mapping: got num_tokens = 2; accepts 1, as k has",
    ),
    "slots": (put(slot_mapping=None), DTypeError, "slot_mapping: got NoneType"),
    "a slot that is not there": (put(slot_mapping=torch.tensor([128])), InvalidArgumentError, "slot_mapping"),
    "elements of the cache": (put(k_cache=torch.zeros(2, 37440)), DTypeError, "k_cache: got float32; accepts uint8"),
    "rank of the cache": (put(k_cache=torch.zeros(37440).byte()), ShapeError, r"k_cache: got shape \[37440\]"),
    "blocks that are too short": (
        put(k_cache=torch.zeros(2, 37375).byte()),
        ShapeError,
        r"k_cache: got shape \[2, 37375\]; accepts \[num_blocks, 37376 or more\], because a block has 64 tokens of 584",
    ),
    "stride of blocks": (
        put(k_cache=torch.zeros(2, 37376).byte()),
        StrideError,
        "k_cache: got stride 37376 along num_pages; accepts a multiple of 576",
    ),
    "tokens of a block": (
        put(k_cache=torch.zeros(2, 32, 584).byte()),
        ShapeError,
        r"k_cache: got shape \[2, 32, 584\]; accepts \[num_blocks, 64, 584\]",
    ),
    "is_ue8m0": (put(is_ue8m0=False), UnsupportedError, "is_ue8m0: got False; accepts True"),
    "use_fnuz": (put(use_fnuz=True), UnsupportedError, "use_fnuz: got True; accepts False"),
    "bytes_per_token": (
        put(bytes_per_token=656),
        UnsupportedError,
        r"bytes_per_token: got 656; accepts 584 \(fp8_ds_v4\) or 528 \(fp8_ds_v41\) or 288 \(fp4_ds_v41\)",
    ),
    "block_size": (put(block_size=0), InvalidArgumentError, "block_size: got 0; accepts 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=f"^{text}"):
        call()
