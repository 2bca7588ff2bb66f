"""A model runner of SGLang with requests in its cache, and what a step of them should give."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import torch
from mla_kernels import reference
from mla_kernels.compat import sglang_plugin as door

from tests.runtime.compat.sglang.stand_ins import OURS, Engine, Pool

RANK, ROPE, HEADS, SCALE, CONTEXT, REQUESTS = 512, 64, 4, 0.07, 256, 8
DRAFTED = 4
"""Tokens that are drafted of each request; the last needs no attention of its own."""
NOWHERE = 1 << 20
"""A slot that no pool has."""


def runner_of(engine: Engine, dtype: torch.dtype = torch.bfloat16, **other: Any) -> Any:
    """A model runner as it makes its attention backend; on the CPU with pages of 64 unless told otherwise."""
    config = {
        "hf_config": SimpleNamespace(),
        "hf_text_config": SimpleNamespace(),
        "kv_lora_rank": RANK,
        "num_attention_heads": HEADS,
        "qk_rope_head_dim": ROPE,
    }
    config |= {name: other.pop(name) for name in list(other) if name in config}
    given = {"device": "cpu", "page_size": 64, "kv_cache_dtype": dtype, "use_mla_backend": True, "translated": False}
    given |= {"is_draft_worker": False, "prefill_attention_backend_str": door.NAME} | other
    slots = torch.full((REQUESTS, CONTEXT), NOWHERE, dtype=torch.int32, device=given["device"])
    translated = given.pop("translated")
    return engine.record(
        "ModelRunner",
        dtype=dtype,
        gpu_id=0,
        kv_index_translator=engine.record("KVIndexTranslator", reads_are_translated=translated),
        model_config=engine.record("ModelConfig", **config),
        req_to_token_pool=engine.record("ReqToTokenPool", req_to_token=slots),
        token_to_kv_pool=Pool(engine, REQUESTS * CONTEXT, RANK + ROPE, given["kv_cache_dtype"], given["device"]),
        **given,
    )


def backend_of(runner: Any) -> Any:
    """Our backend of a model runner."""
    return importlib.import_module(OURS).MlaKernelsBackend(runner)


def drafted_by(engine: Engine, runner: Any, steps: int) -> list[Any]:
    """Our backends of a draft model, as SGLang's factory makes them: of the steps that draft, and of the extension."""
    door.plugin()
    factory = engine.record(
        "DraftBackendFactory", _create_backend=None, draft_model_runner=runner, speculative_num_steps=steps, topk=1
    )
    target = f"{engine.names['read']['DraftBackendFactory']['module']}.DraftBackendFactory._create_backend"
    (hook,) = engine.hooked(target, "BEFORE")
    made = []
    for call in (each for each in engine.names["calls"] if each["name"] == "_create_backend"):
        backends: dict[str, Any] = {"flashmla": "theirs"}
        hook(factory, "a role", backends, "an error", **dict.fromkeys(call["keywords"], True))
        assert list(backends) == ["flashmla", door.NAME]
        stamp, backend = backends[door.NAME]()
        assert stamp == door.NAME
        made.append(backend)
    return made


def speculate(engine: Engine, drafts: int) -> None:
    """Let the server verify so many drafts at a time."""
    vars(engine.spec).update(
        speculative_algorithm="EAGLE", speculative_eagle_topk=1, speculative_num_draft_tokens=drafts
    )


class Requests:
    """Requests whose pages lie scattered over a poisoned cache; their new tokens are not written yet.

    Attributes
    ----------
    batch : ForwardBatch
        ``seq_lens`` counts the token of a decode and those of an extension, and not the drafts of a verification.
    q, k, v : tensor
        Absorbed queries, and the latents of the new tokens, as SGLang's layers have them.
    """

    def __init__(
        self, engine: Engine, runner: Any, lengths: list[int], drafted: int = 0, seed: int = 0, mode: str | None = None
    ) -> None:
        self.source, self.q_len = torch.Generator().manual_seed(seed), max(1, drafted)
        self.totals = [length + drafted for length in lengths]
        self.runner, page = runner, runner.page_size
        self.places = torch.randperm(REQUESTS, generator=self.source)[: len(lengths)]
        self.pages = torch.randperm(REQUESTS * CONTEXT // page, generator=self.source).int()
        self.table = torch.full((len(lengths), CONTEXT // page), -9, dtype=torch.int32)
        pool, slots = runner.token_to_kv_pool.rows, runner.req_to_token_pool.req_to_token
        fresh, given = [], iter(self.pages)
        for row, (place, total) in enumerate(zip(self.places, self.totals, strict=True)):
            for column in range(-(-total // page)):
                self.table[row, column] = next(given)
            tokens = torch.arange(total)
            used = (self.table[row, tokens // page] * page + tokens % page).long().to(runner.device)
            slots[place], slots[place, :total] = NOWHERE, used.int()
            pool[used] = self.random(total, 1, RANK + ROPE)
            pool[used[total - self.q_len :]] = torch.full((self.q_len, 1, RANK + ROPE), torch.nan).to(pool)
            fresh.append(used[total - self.q_len :])
        count = len(lengths) * self.q_len
        self.q = self.random(count, HEADS, RANK + ROPE).to(runner.dtype)
        self.k = self.random(count, 1, RANK + ROPE).to(runner.dtype)
        self.v = self.k[..., :RANK]
        mode = mode or ("TARGET_VERIFY" if drafted else "DECODE")
        counted = self.totals if mode == "DRAFT_EXTEND_V2" else lengths
        modes = engine.module("sglang.srt.model_executor.forward_batch_info").ForwardMode
        self.batch = engine.record(
            "ForwardBatch",
            batch_size=len(lengths),
            forward_mode=modes[mode],
            req_pool_indices=self.places.to(runner.device),
            seq_lens=torch.tensor(counted, device=runner.device),
            seq_lens_cpu=torch.tensor(counted),
        )
        self.batch.out_cache_loc = torch.cat(fresh)

    def random(self, *shape: int) -> torch.Tensor:
        """Numbers of the element type of the cache, where it is."""
        return torch.randn(shape, generator=self.source).to(self.runner.token_to_kv_pool.rows)

    def expected(self) -> torch.Tensor:
        """Latents of the queries once the new tokens are in the cache."""
        cache = self.runner.token_to_kv_pool.rows.cpu().clone()
        cache[self.batch.out_cache_loc.cpu()] = self.k.cpu().to(cache.dtype)
        q = self.q.cpu().unflatten(0, (len(self.totals), self.q_len))
        paged = cache.view(-1, self.runner.page_size, RANK + ROPE)
        out, _ = reference.decode(q, paged, self.table, torch.tensor(self.totals).int(), softmax_scale=SCALE)
        return out.flatten(0, 1).flatten(1).to(self.runner.dtype)


def chained(requests: Requests) -> list[Any]:
    """The steps of requests that each draft one of their new tokens, one after the other."""
    count, steps = len(requests.totals), requests.q_len
    slots, made = requests.batch.out_cache_loc.view(count, steps), []
    for step in range(steps):
        q, k = (each.unflatten(0, (count, steps))[:, step].contiguous() for each in (requests.q, requests.k))
        batch = SimpleNamespace(**vars(requests.batch))
        batch.out_cache_loc = slots[:, step].clone()
        made.append(SimpleNamespace(q=q, k=k, v=k[..., :RANK], batch=batch))
    return made


def ragged(engine: Engine, requests: Requests, counts: list[int]) -> Any:
    """Requests that verify the first drafts only of what they have: so many of each."""

    def layout(counts: list[int]) -> Any:
        verify_lens = torch.tensor(counts, dtype=torch.int32, device=requests.runner.device)
        bounds = torch.nn.functional.pad(verify_lens.cumsum(0, dtype=torch.int32), (1, 0))

        def padded(*, padded_bs: int, cap: int | None) -> Any:
            assert cap == requests.q_len
            return layout(counts + [0] * (padded_bs - len(counts)))

        given = {"bs": len(counts), "padded_to_bucket": padded, "verify_lens": verify_lens}
        return engine.record("RaggedVerifyLayout", qo_indptr_device=bounds, **given)

    rows = torch.cat([row * requests.q_len + torch.arange(count) for row, count in enumerate(counts)])
    batch = SimpleNamespace(**vars(requests.batch), layout=layout(counts))
    batch.out_cache_loc = batch.out_cache_loc[rows]
    return SimpleNamespace(q=requests.q[rows], k=(k := requests.k[rows]), v=k[..., :RANK], batch=batch, rows=rows)


def drafts_of(engine: Engine, runner: Any, lengths: list[int], seed: int = 0) -> tuple[Requests, torch.Tensor]:
    """Requests of which tokens are drafted, and what each step should give: ``[steps, requests, ...]``."""
    requests = Requests(engine, runner, lengths, DRAFTED - 1, seed, "DECODE")
    return requests, requests.expected().unflatten(0, (len(lengths), DRAFTED - 1)).transpose(0, 1)


def extension(engine: Engine, runner: Any, lengths: list[int], seed: int = 0) -> Requests:
    """Requests whose draft model has yet to see their verified tokens."""
    return Requests(engine, runner, lengths, DRAFTED, seed, "DRAFT_EXTEND_V2")


def layer_of(engine: Engine, **other: Any) -> Any:
    """An attention layer of SGLang's, absorbed."""
    given = {
        "head_dim": RANK + ROPE, "layer_id": 3, "logit_cap": 0.0, "scaling": SCALE, "sliding_window_size": -1,
        "tp_q_head_num": HEADS, "v_head_dim": RANK,
    }  # fmt: skip
    return engine.record("RadixAttention", **given | other)


def forward(engine: Engine, backend: Any, requests: Any, apart: bool = False) -> torch.Tensor:
    """One layer of a step, as the class at the bottom of SGLang's backends calls it.

    ``apart`` hands over queries and latents as two tensors each, the first queries head by head, as a product of the
    absorbed weights leaves them.
    """
    name = "forward_decode" if requests.batch.forward_mode.is_decode_or_idle() else "forward_extend"
    (call,) = [each for each in engine.names["calls"] if each["name"] == name]
    assert (call["positional"], call["keywords"]) == (5, ["save_kv_cache"])
    q, k, v, more = requests.q, requests.k, requests.v, {}
    if apart:
        assert ["q_rope", "k_rope"] in [
            each["keywords"] for each in engine.names["calls"] if each["name"] == "attn_mqa"
        ]
        more = {"q_rope": q[..., RANK:].clone(), "k_rope": k[..., RANK:].clone()}
        q, k = q[..., :RANK].transpose(0, 1).contiguous().transpose(0, 1), k[..., :RANK].clone()
        v = k
    out: torch.Tensor = getattr(backend, name)(q, k, v, layer_of(engine), requests.batch, save_kv_cache=True, **more)
    return out


def close(out: torch.Tensor, want: torch.Tensor) -> None:
    """Compare in the tolerance of an element type."""
    out = out.cpu()
    assert out.shape == want.shape
    tolerance = 1e-5 if want.dtype == torch.float32 else 0.02
    torch.testing.assert_close(out, want, rtol=tolerance, atol=tolerance)
