"""Decode context parallelism of vLLM in one process: what each rank's layer gives of its share of the caches.

As in vLLM, token ``i`` of a request is on rank ``i // interleave % world_size``, and every rank has the queries of all.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels import reference
from mla_kernels.formats import HEAD_DIM, LATENT, ROPE

from tests.runtime.compat.stand_ins import Overrides, ours
from tests.support.compare import LSE, SPARSE, assert_close

PAGE, SCALE, NOPE = 16, 192**-0.5, 128
MODULE = "mla_kernels.compat._vllm.dense"


def held(tokens: torch.Tensor, rank: int, world_size: int, interleave: int) -> torch.Tensor:
    """Whether a rank has these tokens."""
    return tokens // interleave % world_size == rank


class Ranks:
    """A step of requests with ``q_lens`` new tokens, on ranks with an impl and a builder each.

    Parameters
    ----------
    overrides : Overrides
        What ``installed`` yields.
    device : str
    world_size, interleave, heads : int
        ``heads`` are those of all ranks.
    most : list[int]
        Tokens that each request may have; ``advance`` sets how many it has.
    q_lens : tuple[int, ...]
    """

    def __init__(
        self, overrides: Overrides, device: str, world_size: int, interleave: int, heads: int,
        most: list[int], q_lens: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.device, self.world_size, self.interleave, self.heads = device, world_size, interleave, heads
        self.q_lens, self.starts = q_lens, torch.tensor([0, *q_lens]).cumsum(0).int()
        self.starts_on_device = self.starts.to(device)
        source = torch.Generator().manual_seed(heads + interleave)
        self.rows = torch.randn(len(most), max(most), HEAD_DIM, generator=source).mul(0.1).bfloat16()
        for row, n in zip(self.rows, most, strict=True):
            row[n:] = torch.nan
        self.q = torch.randn(int(self.starts[-1]), heads, HEAD_DIM, generator=source).mul(5).bfloat16()
        self.q_on_device = self.q.to(device)
        shares = [self._share(rank) for rank in range(world_size)]
        self.caches, self.tables = [cache for cache, _ in shares], [table for _, table in shares]
        overrides.config.model_config = SimpleNamespace(dtype=torch.bfloat16)
        self.impls = [self._impl(rank) for rank in range(world_size)]
        self.builders = [self._builder(impl) for impl in self.impls]
        self.totals = torch.zeros(len(most), dtype=torch.int32, device=device)
        self.locals = [torch.zeros_like(self.totals) for _ in self.impls]
        self.advance(most)

    def _share(self, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A rank's pages, NaN where it has no token, and their table, in an order of its own."""
        requests, most, _ = self.rows.shape
        own = self.rows[:, held(torch.arange(most), rank, self.world_size, self.interleave)]
        width = -(-own.shape[1] // PAGE) + 1
        table = torch.randperm(requests * width, generator=torch.Generator().manual_seed(rank)).view(requests, width)
        cache = torch.full((requests * width, PAGE, HEAD_DIM), torch.nan).bfloat16()
        for row, pages in zip(own, table, strict=True):
            filled = torch.full((width * PAGE, HEAD_DIM), torch.nan).bfloat16()
            filled[: len(row)] = row
            cache[pages] = filled.view(width, PAGE, HEAD_DIM)
        return cache.to(self.device), table.int().to(self.device)

    def _impl(self, rank: int) -> Any:
        """A layer as vLLM makes it, which tells it its rank."""
        names = ("alibi_slopes", "sliding_window", "logits_soft_cap", "kv_sharing_target_layer_name", "q_lora_rank")
        impl = ours(f"{MODULE}.DenseImpl")(
            **dict.fromkeys((*names, "kv_b_proj", "indexer")), num_heads=self.heads // self.world_size,
            head_size=HEAD_DIM, scale=SCALE, num_kv_heads=1, kv_cache_dtype="auto", attn_type="decoder",
            kv_lora_rank=LATENT, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, qk_head_dim=NOPE + ROPE, v_head_dim=NOPE,
        )  # fmt: skip
        impl.dcp_rank, impl.dcp_world_size, impl.need_to_return_lse_for_decode = rank, self.world_size, True
        return impl

    def _builder(self, impl: Any) -> Any:
        """What plans a rank's steps, as vLLM's base leaves it."""
        model = SimpleNamespace(dtype=torch.bfloat16)
        own = {"num_heads": impl.num_heads, "dcp_world_size": self.world_size, "model_config": model}
        made = type("Builder", (ours(f"{MODULE}.DenseMetadataBuilder"),), own)
        config = SimpleNamespace(
            compilation_config=SimpleNamespace(static_forward_context={"layer": SimpleNamespace(impl=impl)}),
            model_config=model,
            parallel_config=SimpleNamespace(cp_kv_cache_interleave_size=self.interleave),
        )
        return made(SimpleNamespace(block_size=PAGE), ["layer"], config, torch.device(self.device))

    def advance(self, lengths: list[int]) -> None:
        """Let the requests have other numbers of tokens, the new ones included, where the device has them."""
        self.totals.copy_(torch.tensor(lengths))
        for rank, own in enumerate(self.locals):
            mine = held(torch.arange(max(*lengths, 1)), rank, self.world_size, self.interleave)
            own.copy_(torch.tensor([int(mine[:n].sum()) for n in lengths]))

    def metadata(self, rank: int) -> Any:
        """Plan a rank's step by the present lengths."""
        return self.builders[rank]._build_decode(
            block_table_tensor=self.tables[rank], seq_lens_device=self.locals[rank], max_seq_len=self.rows.shape[1],
            query_start_loc_cpu=self.starts, query_start_loc_device=self.starts_on_device,
            num_decode_tokens=len(self.q), max_query_len=max(self.q_lens), dcp_tot_seq_lens_device=self.totals,
        )  # fmt: skip

    def layer(self, rank: int, metadata: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and LSE of all heads over a rank's tokens."""
        scales = SimpleNamespace(_q_scale_float=1.0, _k_scale_float=1.0)
        described = SimpleNamespace(decode=metadata, causal=True)
        out, lse = self.impls[rank].forward_mqa(self.q_on_device, self.caches[rank], described, scales)
        return out, lse

    def check(self, results: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Combine what the ranks gave, and compare it with attention to whole caches.

        Raises
        ------
        AssertionError
        """
        lengths = self.totals.cpu()
        want, want_lse = reference.decode(
            self.q[None], self.rows, None, lengths, cu_seqlens_q=self.starts, softmax_scale=SCALE, dtype=torch.float64
        )
        outs, lses = (torch.stack([each[part].float() for each in results]) for part in (0, 1))
        out, lse = mla.merge_states(outs, lses)
        assert_close("out", out, want[0], SPARSE)
        assert_close("lse", lse, want_lse[0].T, LSE)
