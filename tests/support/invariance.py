"""Batch invariance, for every device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .compare import assert_same_bytes
from .problems import Decode


def check_batch_invariance(company: Decode, choices: Sequence[list[int]]) -> None:
    """Check that requests give the same bytes in each batch of ``choices`` as in the whole batch ``company``."""
    inputs = company.tensors()
    out, lse = company.launch(inputs)
    company.compare(out, lse, *company.expected())
    for chosen in choices:
        part = replace(company, lengths=tuple(company.lengths[b] for b in chosen))
        some = {name: inputs[name][chosen] for name in ("q", "block_table", "seq_lens")}
        width = max(*(company.pages[b] for b in chosen), 1)
        some["block_table"] = some["block_table"][:, :width].contiguous()
        got_out, got_lse = part.launch({**some, "kv_cache": inputs["kv_cache"]})
        assert_same_bytes("out", got_out, out[chosen], company.reproduce())
        assert_same_bytes("lse", got_lse, lse[chosen], company.reproduce())
