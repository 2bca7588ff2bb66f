"""One decode step of requests that share a prefix: un-absorbed attention over it, absorbed over the rest, then a merge.

``python examples/shared_prefix.py [--device cuda]`` attends from 6 requests to a prefix of 512 tokens that they share
and to 0 to 200 tokens of their own. It compares the result with attention over the whole cache in float64, prints the
largest difference, and exits with 1 where that is too large. ``docs/guide/shared-prefix.md`` says when it pays.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass

import mla_kernels as mla
import torch
from mla_kernels import reference
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

HEADS, LATENT, NOPE, ROPE, VALUE = 16, 512, 128, 64, 128
SCALE = (NOPE + ROPE) ** -0.5
PAGE, PREFIX, OWN = 64, 512, (200, 64, 17, 1, 0, 130)
ALLOWED = 2**-5
"""Of the root mean square of a head's values: keys, weights and values are each rounded to bf16, which is 2^-9."""


@dataclass
class Step:
    """Queries of the newest tokens, the cache, and the two halves of ``kv_b_proj``.

    Attributes
    ----------
    q_nope, q_rope : [batch, heads, 128], [batch, heads, 64]
    kv_cache : [pages, 64, 576]
    block_table : int32 [batch, width]
        It begins with the pages of the prefix, the same for every request.
    seq_lens : int32 [batch]
        Tokens of each request, the prefix included.
    w_uk, w_uv : [heads, 512, 128]
        From the latent to keys and to values.
    """

    q_nope: Tensor
    q_rope: Tensor
    kv_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor
    w_uk: Tensor
    w_uv: Tensor


def random_step(device: str) -> Step:
    """A step in bf16."""
    source = torch.Generator().manual_seed(26)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source).bfloat16().to(device)

    batch, shared, width = len(OWN), PREFIX // PAGE, -(-max(OWN) // PAGE)
    own = torch.randperm(batch * width, generator=source).int().view(batch, width) + shared
    table = torch.cat([torch.arange(shared).int().expand(batch, shared), own], 1)
    return Step(
        q_nope=normal(batch, HEADS, NOPE),
        q_rope=normal(batch, HEADS, ROPE),
        kv_cache=normal(shared + batch * width, PAGE, LATENT + ROPE),
        block_table=table.to(device),
        seq_lens=(torch.tensor(OWN) + PREFIX).int().to(device),
        w_uk=normal(HEADS, LATENT, NOPE) * LATENT**-0.5,
        w_uv=normal(HEADS, LATENT, VALUE) * LATENT**-0.5,
    )


def expanded(step: Step) -> tuple[Tensor, Tensor]:
    """Keys [1, heads, prefix, 192] and values [1, heads, prefix, 128] of the prefix: once, for all steps."""
    slots = torch.arange(PREFIX, device=step.kv_cache.device)
    slots = step.block_table[0, slots // PAGE] * PAGE + slots % PAGE
    rows = mla.gather_kv(step.kv_cache, slots.int())
    latent, rope = rows[:, :LATENT], rows[:, LATENT:]
    keys = torch.cat([latent @ step.w_uk, rope.expand(HEADS, -1, -1)], -1)
    return keys[None], (latent @ step.w_uv)[None]


def over_prefix(step: Step, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Un-absorbed: values [batch, heads, 128] and LSE [batch, heads]; the requests are the queries of one sequence."""
    q = torch.cat([step.q_nope, step.q_rope], -1).transpose(0, 1)[None]
    attend = flex_attention if q.device.type == "cpu" else torch.compile(flex_attention)
    out, aux = attend(q, keys, values, scale=SCALE, return_aux=AuxRequest(lse=True))
    return out[0].transpose(0, 1), aux.lse[0].T.float()


def absorbed(step: Step) -> Tensor:
    """Queries [batch, 1, heads, 576] in the space of the latent."""
    latent = torch.einsum("bhn,hcn->bhc", step.q_nope, step.w_uk)
    return torch.cat([latent, step.q_rope], -1)[:, None]


def over_the_rest(step: Step) -> tuple[Tensor, Tensor]:
    """Absorbed: values [batch, heads, 128] and LSE [batch, heads] of what follows the prefix, which may be nothing."""
    table, lengths = step.block_table[:, PREFIX // PAGE :], step.seq_lens - PREFIX
    out, lse = mla.decode(absorbed(step), step.kv_cache, table, lengths, softmax_scale=SCALE)
    return torch.einsum("bhc,hcv->bhv", out[:, 0], step.w_uv), lse[:, :, 0]


def cascade(step: Step, keys: Tensor, values: Tensor) -> Tensor:
    """Values [batch, heads, 128] of a step."""
    states = zip(over_prefix(step, keys, values), over_the_rest(step), strict=True)
    merged, _ = mla.merge_states(*(torch.stack(parts) for parts in states))
    return merged


def whole(step: Step) -> Tensor:
    """The same by attention over the whole cache, in float64."""
    tensors = (step.kv_cache, step.block_table, step.seq_lens)
    exact = Step(step.q_nope.double(), step.q_rope.double(), *tensors, step.w_uk.double(), step.w_uv.double())
    out, _ = reference.decode(absorbed(exact), *tensors, softmax_scale=SCALE, dtype=torch.float64)
    return torch.einsum("bhc,hcv->bhv", out[:, 0], exact.w_uv)


def main(device: str) -> int:
    """Print the largest difference, in root mean squares of the values of its head."""
    warnings.filterwarnings("ignore", "flex_attention called without torch.compile")  # a CPU needs no fused kernel here
    step = random_step(device)
    got, want = cascade(step, *expanded(step)), whole(step)
    size = want.square().mean(-1, keepdim=True).sqrt()
    difference = float(((got.double() - want).abs() / size).max())
    right = difference <= ALLOWED  # not so for NaN
    print(f"{len(OWN)} requests, {PREFIX} tokens shared, {min(OWN)} to {max(OWN)} of their own, on {device}")
    print(f"largest difference from attention over the whole cache: {difference:.1e}, allowed {ALLOWED:.1e}")
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    sys.exit(main(parser.parse_args().device))
