"""Scratch memory of a builder's layers, which run one after the other on one stream."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

__all__ = ["Workspace"]


class Workspace:
    """One buffer for all layers and steps, as large as the largest step so far needs.

    A CUDA graph reads the buffer that it was captured with. A buffer that became too small is therefore kept, and a new
    one has a power of two of bytes, so that all of them have less than twice what the last one has.

    Parameters
    ----------
    device : torch.device
    """

    def __init__(self, device: torch.device) -> None:
        self._kept = [torch.empty(256, dtype=torch.uint8, device=device)]
        self._sizes: dict[Hashable, int] = {}

    def of(self, shape: Hashable, size: Callable[[], int]) -> torch.Tensor:
        """The buffer for a step.

        Parameters
        ----------
        shape : hashable
            Tells steps apart whose layers need different numbers of bytes.
        size : callable
            Called once for each shape: the bytes that a layer needs.
        """
        needed = self._sizes.get(shape)
        if needed is None:
            needed = self._sizes[shape] = size()
        last = self._kept[-1]
        if needed > last.numel():
            last = last.new_empty(1 << (needed - 1).bit_length())
            self._kept.append(last)
        return last
