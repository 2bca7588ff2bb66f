"""What a call costs beside the work: import, lookup, launch, and the one-call op."""

from __future__ import annotations

import inspect
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import mla_kernels
import torch
from mla_kernels import _launcher
from mla_kernels.api import selection
from mla_kernels.api.lookup import find
from mla_kernels.diagnostics.bench.timing import Call
from mla_kernels.diagnostics.tables import Progress, Row
from mla_kernels.formats import HEAD_DIM
from mla_kernels.kernels.base import Kernel, Plan, limits
from mla_kernels.kernels.ops import DecodeKernel
from mla_kernels.payloads.discovery import Payloads
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Domain, Registry, Variant
from mla_kernels.resolve import config, search
from mla_kernels.tensors import Tensor

from benchmarks.timing import overheads

NOOP = "cpu_decode_qbf16_kvbf16_obf16_direct_noop"
DTYPES = {"q_dtype": "bf16", "kv_dtype": "bf16", "out_dtype": "bf16"}
SCALE = 192**-0.5
SCALARS = {"softmax_scale": SCALE, "q_scale": 1.0, "kv_scale": 1.0, "out_scale": 1.0}
_TIMED = "import time; start = time.perf_counter(); import mla_kernels; {}; print(time.perf_counter() - start)"
_BARE = "bare "
_FIRST_LOOKUP = "mla_kernels.lookup(op='decode', arch='cpu', q_dtype='bf16')"


def measure(noop: str | None, progress: Progress[Callable[[], list[Row]]]) -> list[Row]:
    """Run every measurement; ``noop`` is the path of a payload whose decode computes nothing."""
    stages: list[Callable[[], list[Row]]] = [import_time, lookups, one_call]
    if noop:
        stages.append(lambda: launches(noop))
    return [row for stage in progress(stages, "overhead") for row in stage()]


def import_time(processes: int = 11) -> list[Row]:
    """Import, and import with a first lookup, which loads the rest and finds the payloads; in fresh processes."""

    def fresh(statement: str) -> float:
        command = [sys.executable, "-c", _TIMED.format(statement)]
        seconds = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(processes)]
        return statistics.median(seconds)

    return [
        _row("import mla_kernels", fresh("pass"), "60 ms"),
        _row("import mla_kernels and a first lookup", fresh(_FIRST_LOOKUP), None),
    ]


def lookups(rows: int = 10_000, repeats: int = 201) -> list[Row]:
    """A cached lookup, and one that nothing has cached in a parsed registry of ``rows`` variants."""
    cached = overheads(
        {
            "cached": lambda: mla_kernels.lookup(
                op="decode",
                arch="cpu",
                q_dtype="bf16",
                kv_dtype="bf16",
                kv_layout="paged",
                page_size=64,
                num_heads=128,
                q_len=1,
            )
        }
    )["cached"]
    indices = {op: Index(()) for op in _launcher.OPS} | {"decode": Index(synthetic(rows).variants)}
    configs = [_synthetic_config(repeat * 7919 % rows) for repeat in range(repeats)]
    imagined = Payloads({}, (), indices)
    with patch.object(search, "payloads", lambda: imagined), patch.object(config, "payloads", lambda: imagined):
        searching = [_once(lambda each=each: search.search(each)) for each in configs]  # type: ignore[misc]
    heads = range(1, repeats + 1)
    whole = [_once(lambda n=n: find({"op": "decode", "arch": "cpu", "q_dtype": "bf16", "num_heads": n})) for n in heads]  # type: ignore[misc]
    return [
        _row("lookup, cached", cached, "1 us"),
        _row(f"lookup, cold, {rows:,} variants: check the config, search", statistics.median(searching), "1 ms"),
        _row("lookup, cold, installed variants: the same and bind the kernel", statistics.median(whole), "1 ms"),
    ]


def _once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def synthetic(rows: int) -> Registry:
    """A registry of ``rows`` decode variants that differ in schedule, element types and page size."""
    listed = []
    for row in range(rows):
        schedule, page_size, dtype = _synthetic_traits(row)
        listed.append(
            {
                "name": f"synthetic_{row}",
                "op": "decode",
                "arch": "cpu",
                "priority": 0,
                "baked": {"q_dtype": dtype, "kv_dtype": dtype, "out_dtype": dtype, "schedule": schedule},
                "accepts": {"page_size": [page_size], "num_heads": {"min": 1}, "q_len": {"min": 1, "max": 4}},
            }
        )
    return Registry.parse(
        {
            "payload": "synthetic",
            "arch": {"name": "cpu", "device": "cpu"},
            "abi_hash": _launcher.ABI_HASH,
            "traits": {"decode": ["q_dtype", "kv_dtype", "out_dtype", "schedule"]},
            "accepted": {"decode": ["page_size", "num_heads", "q_len"]},
            "domains": {},
            "allow": [],
            "variants": listed,
        }
    )


def _synthetic_traits(row: int) -> tuple[str, int, str]:
    return f"s{row // 24}", 16 << row % 8, ("fp32", "fp16", "bf16")[row // 8 % 3]


def _synthetic_config(row: int) -> dict[str, Any]:
    schedule, page_size, dtype = _synthetic_traits(row)
    numbers = {"page_size": page_size, "num_heads": 128, "q_len": 1}
    return {"op": "decode", "arch": "cpu", "q_dtype": dtype, "kv_dtype": dtype, "schedule": schedule, **numbers}


class _Step:
    """The arguments of one tiny decode."""

    def __init__(self) -> None:
        self.q = torch.randn(1, 1, 1, HEAD_DIM).bfloat16()
        self.kv_cache = torch.randn(1, 16, HEAD_DIM).bfloat16()
        self.block_table = torch.zeros(1, 1, dtype=torch.int32)
        self.seq_lens = torch.ones(1, dtype=torch.int32)
        self.kernel = mla_kernels.lookup(
            op="decode", arch="cpu", q_dtype="bf16", kv_layout="paged", page_size=16, num_heads=1, q_len=1
        )
        self.plan = self.kernel.plan(self.seq_lens)
        arguments = (self.q, self.kv_cache, self.block_table, self.seq_lens)
        self.out, self.lse = self.kernel(*arguments, plan=self.plan, softmax_scale=SCALE)
        size = self.kernel.workspace_size(q=self.q, kv_cache=self.kv_cache, block_table=self.block_table)
        self.workspace = torch.empty(size, dtype=torch.uint8)
        self.positional = arguments
        self.given = {"out": self.out, "lse": self.lse, "workspace": self.workspace, "softmax_scale": SCALE}

    def native(self, plan: Tensor | None, workspace: Tensor | None) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """What the launcher takes, in its order: the tensors, and the rest."""
        tensors = (*self.positional, self.out, self.lse, None, None)
        scalars = {**SCALARS, "causal": True, "max_splits": 0, "batch_invariant": False, "max_q_len": 0}
        ordered = (scalars[name] for name in _launcher.OPS["decode"][len(tensors) :])
        return tensors, (*ordered, plan, workspace, None)


def one_call() -> list[Row]:
    """``mla.decode`` on a tiny problem beyond the payload's own time; plan and allocation beside it."""
    step = _Step()
    raw = step.kernel._native.launch
    tensors, rest = step.native(step.plan.buffer, step.workspace)
    seconds = overheads(
        {
            "raw": lambda: raw(*tensors, *rest),
            "decode": lambda: mla_kernels.decode(*step.positional, plan=step.plan, **step.given),
            "plan": lambda: step.kernel.plan(step.seq_lens),
            "refresh": lambda: step.kernel.plan(step.seq_lens, out=step.plan),
            "allocate": lambda: mla_kernels.decode(*step.positional, plan=step.plan, softmax_scale=SCALE),
            "everything": lambda: mla_kernels.decode(*step.positional, softmax_scale=SCALE),
        },
        number=500,
    )
    return [
        _row("mla.decode over the launch, tiny problem", seconds["decode"] - seconds["raw"], None),
        _row("the launch of a tiny decode, its checks and its work", seconds["raw"], None),
        _row("allocating out, lse and workspace", seconds["allocate"] - seconds["decode"], None),
        _row("kernel.plan(seq_lens)", seconds["plan"], None),
        _row("kernel.plan(seq_lens, out=plan)", seconds["refresh"], None),
        _row("mla.decode with nothing given, tiny problem", seconds["everything"], None),
    ]


def launches(path: str, rounds: int = 15) -> list[Row]:
    """Six tensors and four scalars through all checks into a decode that computes nothing, then with two buffers more.

    The no-op needs neither plan nor workspace; each is one more tensor to read. Every round takes all calls in turns;
    the median of a launch is over the median of its bare call, the best over the best.
    """
    step = _Step()
    kernel = _noop_kernel(path, step.kernel.variant.accepts)
    plan = Plan(step.plan.buffer, NOOP, 1, 1, 1, 0, False)
    measured: list[tuple[str, Call, Call, str | None]] = [
        *_ways(kernel, step, "six tensors", None, None),
        *_ways(kernel, step, "six tensors, plan and workspace", plan, step.workspace),
    ]
    calls = {what: call for what, call, _, _ in measured} | {_BARE + what: bare for what, _, bare, _ in measured}
    with _selected(kernel, step):
        seconds = [overheads(calls, repeats=5) for _ in range(rounds)]

    def over(what: str, statistic: Callable[[list[float]], float]) -> float:
        return statistic([one[what] for one in seconds]) - statistic([one[_BARE + what] for one in seconds])

    return [_row(what, over(what, statistics.median), target, over(what, min)) for what, _, _, target in measured]


def _ways(
    kernel: DecodeKernel, step: _Step, given: str, plan: Plan | None, workspace: Tensor | None
) -> list[tuple[str, Call, Call, str | None]]:
    """Each way to launch: what it is, the launch, the bare call with the same arguments, and the time to reach."""
    raw, bare_object, bare_function = kernel._native.launch, _BareObject(), _bare(kernel.launch)
    tensors, rest = step.native(None if plan is None else plan.buffer, workspace)
    named = {"out": step.out, "lse": step.lse, **SCALARS}
    if plan is not None:
        named |= {"plan": plan, "workspace": workspace}
    reach = "0.6 us" if plan is None else None

    def bare() -> None:
        bare_function(*step.positional, **named)

    return [
        (
            f"launcher, no-op, {given}, over a bare call of a function",
            lambda: raw(*tensors, *rest),
            lambda: _positional(*tensors, *rest),
            reach,
        ),
        (
            f"kernel(...), no-op, {given}, over a bare call of an object",
            lambda: kernel(*step.positional, **named),
            lambda: bare_object(*step.positional, **named),
            reach,
        ),
        (
            f"kernel.launch(...), no-op, {given}, over a bare call of a function",
            lambda: kernel.launch(*step.positional, **named),
            bare,
            reach,
        ),
        (
            f"mla.decode(...), no-op, {given}, over a bare call of a function",
            lambda: mla_kernels.decode(*step.positional, **named),
            bare,
            "5 us",
        ),
    ]


def _noop_kernel(path: str, accepts: Mapping[str, Domain]) -> DecodeKernel:
    bind = partial(_launcher.Payload(path).kernel, NOOP, DTYPES, device="cpu")
    variant = Variant(NOOP, "decode", "cpu", "noop", 0, {**DTYPES, "load": "direct", "schedule": "noop"}, accepts)
    return DecodeKernel(variant, {}, bind, limits(variant, {}))


@contextmanager
def _selected(kernel: Kernel, step: _Step) -> Iterator[None]:
    """Let ``mla.decode`` find ``kernel`` for the tensors of ``step``."""
    selection._decodes.clear()
    selection.decode_kernel(step.q, step.kv_cache, step.out, paged=True)
    (key,) = selection._decodes
    selection._decodes[key] = kernel
    try:
        yield
    finally:
        selection._decodes.clear()


def _bare(launch: Callable[..., object]) -> Callable[..., None]:
    """A function that takes what ``launch`` takes, and does nothing."""
    signature = inspect.signature(launch)
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    plain = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    scope: dict[str, Any] = {}
    exec(f"def bare{plain}: pass", scope)
    return scope["bare"]  # type: ignore[no-any-return]


class _BareObject:
    __slots__ = ()
    __call__ = _bare(DecodeKernel.launch)


def _positional(*arguments: object) -> None:
    pass


def _row(what: str, seconds: float, target: str | None, best: float | None = None) -> Row:
    """A median, and the best where more than one was taken."""
    return {"what": what, "us": seconds * 1e6, "best us": None if best is None else best * 1e6, "to reach": target}
