"""The exchange by collectives of the group: one all-gather and one all-to-all a layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist

from mla_kernels.distributed.exchange import SendsRecords
from mla_kernels.distributed.records import LayerShape, Records
from mla_kernels.errors import GroupError

_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""torch 2.13 has renamed it."""


class Collectives(SendsRecords):
    """The exchange by the group's own operations."""

    def __init__(self, shape: LayerShape, group: dist.ProcessGroup | None) -> None:
        self._shape = shape
        self._group = group

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """Gather the queries of all ranks."""
        queries = own.new_empty(self._shape.world_size * own.shape[0], *own.shape[1:])
        with of_group():
            _gather_single(queries, own, group=self._group)
        return queries

    def send(self, partials: Records) -> Records:
        """Exchange the records in one all-to-all."""
        received = Records(self._shape)
        with of_group():
            dist.all_to_all_single(received.bytes, partials.bytes, group=self._group)
        return received


def gather_integers(own: Sequence[int], group: dist.ProcessGroup | None, device: torch.device) -> list[tuple[int, ...]]:
    """Return as many integers of every rank, by rank; the host waits for them."""
    mine = torch.tensor(own, dtype=torch.int64, device=device)
    every = mine.new_empty(dist.get_world_size(group) * len(own))
    with of_group():
        _gather_single(every, mine, group=group)
        return [tuple(row) for row in every.view(-1, len(own)).tolist()]


@contextmanager
def of_group() -> Iterator[None]:
    """Say of what a group's backend raises that a rank is the reason, and what to do."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise GroupError(
            f"the ranks did not exchange their tensors ({error}); a rank may be lost, late, or have another shape: "
            "end all ranks, and see the first one's message"
        ) from error
