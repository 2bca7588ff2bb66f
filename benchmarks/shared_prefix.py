"""Decode over a prefix that all requests share, three ways: ``python -m benchmarks.shared_prefix OUT.json``.

``whole`` is one absorbed decode over prefix and suffix of every request. ``cascade`` is the recipe of
``docs/guide/shared-prefix.md``: un-absorbed attention over the prefix by torch, an absorbed decode over the suffixes,
and ``merge_states``. ``absorbed`` attends to the prefix once for all requests too, but by our kernel over the latent,
so that nothing is expanded. Every way begins with the queries of the layer and ends with its values,
[batch, heads, 128].
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels.devices import current_arch
from mla_kernels.diagnostics.bench import timing
from mla_kernels.diagnostics.bench.problems import SCALE
from mla_kernels.formats import HEAD_DIM, LATENT
from torch import Tensor

from benchmarks.ops import cuda, run_cuda
from benchmarks.pages import shared_prefix as page

NOPE, ROPE, VALUE, PAGE = 128, 64, 128, 64
ALLOWED = 2.0**-6
"""What the values of two ways may differ by, as norms: each rounds keys, weights, values and results to bf16."""
_MOST_PROBLEMS = 4
"""A graph replays so many problems with memory of their own, so that none finds its keys in the L2, as in a model."""
_MOST_BYTES = 8 << 30

Attention = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Values [1, heads, batch, 128 or more] and LSE [1, heads, batch or more] of queries, keys and values."""


@dataclass(frozen=True)
class Cell:
    """Requests, heads, tokens that all share, and tokens of each alone."""

    batch: int
    heads: int
    prefix: int
    suffix: int

    @property
    def counts(self) -> dict[str, float]:
        """GFLOP of attention, and MB of its keys and values, of which the shared ones count once."""
        pairs = {"prefix": self.batch * self.heads * self.prefix, "suffix": self.batch * self.heads * self.suffix}
        latent, expanded = 2 * (HEAD_DIM + LATENT), 2 * (NOPE + ROPE + VALUE)
        return {
            "whole GFLOP": latent * (pairs["prefix"] + pairs["suffix"]) / 1e9,
            "cascade GFLOP": (expanded * pairs["prefix"] + latent * pairs["suffix"]) / 1e9,
            "whole MB": 2 * HEAD_DIM * (self.prefix + self.batch * self.suffix) / 1e6,
            "cascade MB": (expanded * self.heads * self.prefix + 2 * HEAD_DIM * self.batch * self.suffix) / 1e6,
        }


CELLS = (
    Cell(64, 128, 8192, 128),
    Cell(64, 128, 8192, 1024),
    Cell(64, 128, 8192, 4096),
    Cell(16, 128, 8192, 1024),
    Cell(256, 128, 8192, 1024),
    Cell(64, 128, 32768, 1024),
)


class Problem:
    """The tensors of one layer in a cell, and what a server makes before the step: plans and the expanded prefix."""

    def __init__(self, cell: Cell, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)
        batch, heads, shared, own = cell.batch, cell.heads, cell.prefix // PAGE, cell.suffix // PAGE

        def normal(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.bfloat16, device=device).normal_()

        self.q_nope, self.q_rope = normal(batch, heads, NOPE), normal(batch, heads, ROPE)
        self.w_uk, self.w_uv = normal(heads, LATENT, NOPE) * LATENT**-0.5, normal(heads, LATENT, VALUE) * LATENT**-0.5
        self.kv_cache = normal(shared + batch * own, PAGE, HEAD_DIM)
        pages = torch.randperm(shared + batch * own, dtype=torch.int32, device=device)
        self.prefix_table, self.suffix_table = pages[None, :shared], pages[shared:].view(batch, own)
        self.table = torch.cat([self.prefix_table.expand(batch, -1), self.suffix_table], 1)
        self.q_full = torch.cat([self.q_nope, self.q_rope], -1).transpose(0, 1)[None]
        rows = self.kv_cache[self.prefix_table[0].long()].view(-1, HEAD_DIM)
        self.keys = torch.empty(1, heads, cell.prefix, NOPE + ROPE, dtype=torch.bfloat16, device=device)
        # Torch's flash attention takes values as wide as keys; they are views of the same memory for the others.
        self.wide_values = torch.zeros_like(self.keys)
        for head in range(heads):
            self.keys[0, head, :, :NOPE] = rows[:, :LATENT] @ self.w_uk[head]
            self.wide_values[0, head, :, :VALUE] = rows[:, :LATENT] @ self.w_uv[head]
        self.keys[..., NOPE:] = rows[:, LATENT:]
        lengths = torch.full((batch,), cell.suffix, dtype=torch.int32, device=device)
        self.lengths, self.total_lengths = lengths, lengths + cell.prefix
        self.shared_length = torch.full_like(lengths[:1], cell.prefix)
        self.kernel, self.prefix_kernel = kernel_of(heads, 1), kernel_of(heads, batch)
        self.whole_plan, self.suffix_plan = self.kernel.plan(self.total_lengths), self.kernel.plan(lengths)
        self.prefix_plan = self.prefix_kernel.plan(self.shared_length)

    def absorbed_queries(self) -> Tensor:
        """Queries [batch, 1, heads, 576]."""
        latent = torch.bmm(self.q_nope.transpose(0, 1), self.w_uk.transpose(1, 2)).transpose(0, 1)
        return torch.cat([latent, self.q_rope], -1)[:, None]

    def projected(self, latent: Tensor) -> Tensor:
        """Values [batch, heads, 128] of outputs [batch, heads, 512]."""
        return torch.bmm(latent.transpose(0, 1), self.w_uv).transpose(0, 1)

    def over_suffixes(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [batch, heads, 512] and LSE [batch, heads]."""
        given = {"plan": self.suffix_plan, "softmax_scale": SCALE}
        out, lse = self.kernel(q, self.kv_cache, self.suffix_table, self.lengths, **given)
        return out[:, 0], lse[:, :, 0]

    def over_prefix(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """The same of the prefix, which sees all requests as tokens of one."""
        given = {"plan": self.prefix_plan, "softmax_scale": SCALE, "causal": False}
        tokens = q.transpose(0, 1)
        out, lse = self.prefix_kernel(tokens, self.kv_cache, self.prefix_table, self.shared_length, **given)
        return out[0], lse[0].T

    def whole(self) -> Tensor:
        """Values by one decode."""
        given = {"plan": self.whole_plan, "softmax_scale": SCALE}
        out, _ = self.kernel(self.absorbed_queries(), self.kv_cache, self.table, self.total_lengths, **given)
        return self.projected(out[:, 0])

    def cascade(self, attention: Attention) -> Tensor:
        """Values by un-absorbed attention over the prefix, and absorbed over the suffixes."""
        first = self.expanded(attention)
        latent, lse = self.over_suffixes(self.absorbed_queries())
        return merged(first, (self.projected(latent), lse))

    def absorbed(self) -> Tensor:
        """Values by two decodes."""
        q = self.absorbed_queries()
        return self.projected(merged(self.over_prefix(q), self.over_suffixes(q)))

    def expanded(self, attention: Attention) -> tuple[Tensor, Tensor]:
        """Values [batch, heads, 128] and LSE [batch, heads] of the prefix."""
        out, lse = attention(self.q_full, self.keys, self.wide_values)
        batch = self.q_full.shape[2]
        return out[0, :, :, :VALUE].transpose(0, 1), lse.reshape(lse.shape[1], -1)[:, :batch].T


def kernel_of(heads: int, q_len: int) -> mla.Kernel:
    """The kernel of so many heads and query tokens."""
    config: dict[str, Any] = {"kv_layout": "paged", "page_size": PAGE, "num_heads": heads, "q_len": q_len}
    return mla.lookup(op="decode", q_dtype="bf16", kv_dtype="bf16", **config)


def merged(*states: tuple[Tensor, Tensor]) -> Tensor:
    """The outputs of disjoint keys as one."""
    outs, lses = zip(*states, strict=True)
    out: Tensor = mla.merge_states(torch.stack(outs), torch.stack(lses))[0]
    return out


def cudnn(q: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """CuDNN's, by torch."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(q, keys, values[..., :VALUE], None, True, scale=SCALE)
    return found[0], found[1]


def flash(q: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Flash attention, by torch."""
    found = torch.ops.aten._scaled_dot_product_flash_attention(q, keys, values, scale=SCALE)
    return found[0], found[1]


def efficient(q: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The memory-efficient attention of xFormers, by torch."""
    narrow = values[..., :VALUE]
    found = torch.ops.aten._scaled_dot_product_efficient_attention(q, keys, narrow, None, True, scale=SCALE)
    return found[0], found[1]


ATTENTIONS: dict[str, Attention] = {"cuDNN": cudnn, "flash": flash, "efficient": efficient}
"""What torch has that takes keys of 192 columns and returns an LSE."""


def difference(got: Tensor, want: Tensor) -> float:
    """The norm of the difference over the norm of what is wanted."""
    return float((got.double() - want.double()).norm() / want.double().norm())


def measure(cell: Cell, device: torch.device, repeats: int) -> dict[str, Any]:
    """Microseconds of each way and of its parts, and how far its values are from those of ``whole``."""
    size = 2 * (2 * cell.heads * cell.prefix * (NOPE + ROPE) + HEAD_DIM * (cell.prefix + cell.batch * cell.suffix))
    problems = [Problem(cell, device, seed) for seed in range(max(1, min(_MOST_PROBLEMS, _MOST_BYTES // size)))]
    want = problems[0].whole()

    def timed(call: Callable[[Problem], object]) -> float:
        return timing.replayed([partial(call, problem) for problem in problems], repeats) * 1e6

    row: dict[str, Any] = {**asdict(cell), **cell.counts, "problems": len(problems), "whole us": timed(Problem.whole)}
    row["absorbed us"] = timed(Problem.absorbed)
    row["absorbed difference"] = difference(problems[0].absorbed(), want)
    row["torch"] = {name: _of_torch(problems, attention, want, timed) for name, attention in ATTENTIONS.items()}
    served = {name: each for name, each in row["torch"].items() if "note" not in each}
    if served:
        row["by"] = min(served, key=lambda name: float(served[name]["cascade us"]))
        row |= served[row["by"]]
        row["prefix us"] = timed(lambda problem: problem.expanded(ATTENTIONS[row["by"]]))
    queries = [problem.absorbed_queries() for problem in problems]
    at = {id(problem): q for problem, q in zip(problems, queries, strict=True)}
    row["suffix us"] = timed(lambda problem: problem.over_suffixes(at[id(problem)]))
    row["absorbed prefix us"] = timed(lambda problem: problem.over_prefix(at[id(problem)]))
    row["projections us"] = timed(lambda problem: problem.projected(problem.absorbed_queries()[:, 0, :, :LATENT]))
    values, lse = want.clone(), torch.zeros(want.shape[:2], device=device)
    row["merge us"] = timed(lambda _: merged((values, lse), (values, lse)))
    return row


def _of_torch(
    problems: list[Problem], attention: Attention, want: Tensor, timed: Callable[..., float]
) -> dict[str, Any]:
    """The cascade by one attention of torch; what torch does not serve is a note."""
    try:
        got = problems[0].cascade(attention)
    except (RuntimeError, NotImplementedError) as error:
        return {"note": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"}
    return {
        "cascade us": timed(lambda problem: problem.cascade(attention)),
        "cascade difference": difference(got, want),
    }


def wrong(row: dict[str, Any]) -> list[str]:
    """The ways of a cell whose values are not those of ``whole``; NaN is none."""
    found = {"absorbed": row["absorbed difference"]}
    found |= {name: each["cascade difference"] for name, each in row["torch"].items() if "note" not in each}
    return [f"{name}: {value:.2e}" for name, value in found.items() if not value <= ALLOWED]


def run(path: Path, repeats: int) -> int:
    """Measure all cells and write them after each; 1 where ways disagree, or torch serves no prefix."""
    document: dict[str, Any] = {
        "command": f"python -m benchmarks.shared_prefix OUT.json --repeats {repeats}",
        "machine": cuda.machine(),
        "payload": run_cuda.payload(current_arch()),
        "allowed difference": ALLOWED,
        "repeats": repeats,
        "rows": [],
    }
    status = 0
    for cell in CELLS:
        torch.cuda.empty_cache()
        row = measure(cell, torch.device("cuda"), repeats)
        document["rows"].append(row)
        path.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
        print(row, flush=True)
        faults = wrong(row) + ([] if "by" in row else ["torch has no attention for the prefix"])
        for fault in faults:
            print(f"WRONG {cell}: {fault}", file=sys.stderr)
        status |= bool(faults)
    return status


def main() -> int:
    """Measure, or write the page of what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_prefix", description=__doc__)
    parser.add_argument("data", type=Path, metavar="JSON")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--page", type=Path, help="write the page of JSON, and measure nothing")
    options = parser.parse_args()
    if options.page is None:
        return run(options.data, options.repeats)
    document = json.loads(options.data.read_text(encoding="utf-8"))
    options.page.write_text(page.page(document, data=f"data/{options.data.name}"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
