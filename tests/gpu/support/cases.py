"""A launch of every op around attention, for each of its types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.gpu.support import gather_kv, merge_states, store_kv, to_global_indices
from tests.gpu.support.launches import Case

OPS: dict[str, tuple[Callable[..., Case], Sequence[tuple[str, ...]]]] = {
    "store_kv": (store_kv.case, store_kv.TYPES),
    "gather_kv": (gather_kv.case, gather_kv.TYPES),
    "merge_states": (merge_states.case, merge_states.TYPES),
    "to_global_indices": (to_global_indices.case, [()]),
}
EVERY = [(op, types) for op, (_, served) in OPS.items() for types in served]


def case(arch: str, op: str, types: tuple[str, ...], device: str = "cuda") -> Case:
    """The launch of an op with these types."""
    make, _ = OPS[op]
    return make(arch, *types, device)
