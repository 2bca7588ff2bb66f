"""What the adapters share: checks of shapes and dtypes, and errors in the argument names of another package."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from mla_kernels.errors import DTypeError, InvalidArgumentError, ShapeError
from mla_kernels.tensors import Tensor, dtype_name, extents


class Names:
    """What another package calls the arguments of ``mla_kernels``.

    Parameters
    ----------
    everywhere : Mapping[str, str]
        Our names and theirs, replaced wherever an error has them.
    alone : Mapping[str, str], optional
        Those of our names that are English words, replaced only where they say which argument is wrong.
    """

    def __init__(self, everywhere: Mapping[str, str], alone: Mapping[str, str] | None = None) -> None:
        self._theirs = {**everywhere, **(alone or {})}
        self._argument = _any_of(self._theirs)
        self._words = _any_of(everywhere)

    def renamed(self, error: InvalidArgumentError) -> InvalidArgumentError:
        """The same error in the names of the other package."""
        argument = self._swapped(self._argument, error.argument)
        return type(error)(argument, *(self._swapped(self._words, text) for text in (error.got, error.accepts)))

    def _swapped(self, pattern: re.Pattern[str], text: str) -> str:
        return pattern.sub(lambda found: self._theirs[found[0]], text)


def shape_of(argument: str, tensor: Tensor, *dims: str | int) -> tuple[int, ...]:
    """The shape of a tensor; a number among ``dims`` is what that extent must be, a name leaves it open.

    Raises
    ------
    DTypeError, ShapeError
        The argument is no tensor, or has another shape.
    """
    shape = extents(argument, tensor, *map(str, dims))
    for dim, extent in zip(dims, shape, strict=True):
        if isinstance(dim, int) and dim != extent:
            raise ShapeError(argument, f"shape {list(shape)}", f"[{', '.join(map(str, dims))}]")
    return shape


def require_torch(**tensors: object) -> None:
    """Refuse what is no torch tensor with strides; None passes, and stands for a tensor that is absent.

    Raises
    ------
    DTypeError
    """
    for name, tensor in tensors.items():
        if tensor is not None and not (isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided):
            raise DTypeError(name, type(tensor).__name__, "a dense torch tensor")


def require_one_dtype(**tensors: Tensor) -> None:
    """Refuse tensors whose element types differ from that of the first.

    Raises
    ------
    DTypeError
    """
    (first, own), *others = ((name, dtype_name(name, tensor)) for name, tensor in tensors.items())
    for name, other in others:
        if other != own:
            raise DTypeError(name, other, f"{own}, as {first} has")


def _any_of(names: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, names))})(?!\w)")
