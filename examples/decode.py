"""Look up, launch and check one DeepSeek-V3-shaped decode: 128 heads, 576/512, pages of 64, ragged lengths."""

from __future__ import annotations

import time
from collections import Counter

import mla_kernels as mla
import torch
from mla_kernels import reference
from rich.console import Console
from rich.table import Table

BATCH, HEADS, PAGE, LONGEST = 4, 128, 64, 2048
SCALE = 192**-0.5


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random queries [b, 1, h, 576], a pool of pages [n, 64, 576], a shuffled block table and ragged lengths."""
    generator = torch.Generator().manual_seed(2024)
    width = LONGEST // PAGE
    q = torch.randn(BATCH, 1, HEADS, 576, generator=generator).bfloat16()
    pool = torch.randn(BATCH * width, PAGE, 576, generator=generator).bfloat16()
    table = torch.randperm(BATCH * width, generator=generator).int().view(BATCH, width)
    lengths = torch.randint(1, LONGEST + 1, (BATCH,), generator=generator, dtype=torch.int32)
    return q, pool, table, lengths


def main() -> None:
    """Print the variant found, its error against float32, its time, and what else the registry holds."""
    q, pool, table, lengths = problem()
    kernel = mla.lookup(
        op="decode",
        arch="cpu",
        q_dtype="bf16",
        kv_dtype="bf16",
        kv_layout="paged",
        page_size=PAGE,
        num_heads=HEADS,
        q_len=1,
    )
    plan = kernel.plan(lengths)
    out, lse = kernel(q, pool, table, lengths, plan=plan, softmax_scale=SCALE)
    want, want_lse = reference.decode(q, pool, table, lengths, softmax_scale=SCALE)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        kernel(q, pool, table, lengths, plan=plan, softmax_scale=SCALE, out=out, lse=lse)
        times.append(time.perf_counter() - start)
    error = (out.float() - want.float()).abs().max().item()
    lse_error = (lse - want_lse).abs().max().item()
    median = sorted(times)[len(times) // 2]

    result = Table("fact", "value", title="One decode step", title_justify="left")
    result.add_row("variant", kernel.variant.name)
    result.add_row("lengths", ", ".join(str(length) for length in lengths.tolist()))
    result.add_row("largest error of out, lse", f"{error:.2e}, {lse_error:.2e}")
    result.add_row("median time", f"{median * 1e3:.2f} ms on {torch.get_num_threads()} cores")
    held = Counter((variant.arch, variant.op) for variant in mla.variants())
    registry = Table("arch", "op", "variants", title="The registry", title_justify="left")
    for (arch, op), count in held.items():
        registry.add_row(arch, op, str(count))
    console = Console()
    console.print(result)
    console.print(registry)
    if error > 1e-2 or lse_error > 1e-3:
        raise SystemExit("the kernel does not agree with the reference")


if __name__ == "__main__":
    main()
