"""Every argument of every public function ends in a typed error of that argument, whatever it is given."""

from __future__ import annotations

import pytest
from mla_kernels.errors import InvalidArgumentError, MlaError

from tests.runtime.api.odd_values import CALLS, MEANINGLESS, SELDOM

IGNORED = {
    "flash_mla, sparse": {"block_table", "cache_seqlens"},
    "sgl_kernel, workspace": {"sm_count"},
    "vllm, bf16": {"scale"},
    "vllm, indices": {
        "BLOCK_N", "prefill_workspace_request_ids", "prefill_workspace_starts", "prefill_workspace_rank_stride",
        "dcp_rank", "cp_kv_cache_interleave_size",
    },
}  # fmt: skip
"""Arguments that are documented to have no effect, there or without another one."""

NAMES = {"load", "schedule"}
"""Fields of which any name is one: no variant may serve it."""

ALIASES = {
    ("Plan", "buffer"): {"plan", "out"},
    ("Plan", "variant"): {"plan", "out"},
    ("sgl_kernel, workspace", "num_kv_splits"): {"max_splits"},
    ("explain a config", "config"): {"op"},
}
"""The names that an error gives an argument by another function."""

CASES = [(call, argument) for call, (_, _, arguments) in CALLS.items() for argument in arguments]


@pytest.mark.parametrize("call", CALLS)
def test_the_arguments_are_taken(call: str) -> None:
    """Otherwise the sweep below would see refusals for another reason."""
    function, arguments, _ = CALLS[call]
    if call not in ("explain a config",) and not call.startswith("can_run of to_global"):
        function(**arguments())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("call", "argument"), CASES)
def test_odd_values(call: str, argument: str) -> None:
    function, arguments, _ = CALLS[call]
    wrong = []
    for what, value in {**MEANINGLESS, **SELDOM}.items():
        given = {**arguments(), argument: value()}
        try:
            function(**given)
        except MlaError as error:
            if what in MEANINGLESS and not names(error, call, argument):
                wrong.append(f"{what}: {error}")
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
        else:
            is_name = argument in NAMES and what in ("string", "liar")
            if what in MEANINGLESS and argument not in IGNORED.get(call, ()) and not is_name:
                wrong.append(f"{what} was taken")
    assert not wrong, "\n".join(wrong)


def names(error: MlaError, call: str, argument: str) -> bool:
    """Say whether an error names the argument: as its own, or that of a config without a variant in its text."""
    if not isinstance(error, InvalidArgumentError):
        return argument in str(error)
    return error.argument.split("[")[0] in {argument, *ALIASES.get((call, argument), ())}
