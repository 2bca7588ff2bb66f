"""What ranks do before and after the attention of a layer, in each way that there is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import torch

from mla_kernels.api.ops import merge_states
from mla_kernels.distributed.records import LayerShape, Records
from mla_kernels.tensors import DTypeLike


class Exchange(Protocol):
    """What the ranks do before and after the attention of a layer; of one shape, and used by all its layers."""

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """Return the queries of all ranks, [world_size * num_heads, tokens, d_qk], from those of each rank's heads."""
        ...

    def partials(self) -> Records:
        """Return where the attention writes its results."""
        ...

    def merge(self, partials: Records, out_dtype: DTypeLike | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Merge what all ranks have of the own heads.

        Returns
        -------
        out : [tokens, num_heads, d_v]
        lse : float32 [tokens, num_heads]
        """
        ...


class SendsRecords(Exchange):
    """An exchange that sends each rank the records of its heads, which ``merge_states`` combines there."""

    _shape: LayerShape

    def partials(self) -> Records:
        """Return new records."""
        return Records(self._shape)

    @abstractmethod
    def send(self, partials: Records) -> Records:
        """Give each rank the records of its heads, and return those that all ranks have of the own heads."""

    def merge(self, partials: Records, out_dtype: DTypeLike | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Send the records, and merge those that arrive."""
        return merge_records(self.send(partials), self._shape, out_dtype)


def merge_records(
    records: Records, shape: LayerShape, out_dtype: DTypeLike | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge the records that all ranks have of the heads of one.

    Returns
    -------
    out : [tokens, num_heads, d_v]
    lse : float32 [tokens, num_heads]
    """
    states = (shape.world_size, shape.num_heads, shape.tokens)
    return merge_states(
        records.out.view(*states, shape.d_v).transpose(1, 2),
        records.lse.view(states).transpose(1, 2),
        out_dtype=out_dtype,
    )
