"""Objects that speak DLPack, well or badly: what speaks it well is a tensor, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Producer:
    """A tensor of no known framework, which exports an array of NumPy."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __dlpack__(self, **wishes: Any) -> Any:
        """The array's capsule."""
        return self._array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        """The array's device."""
        return self._array.__dlpack_device__()


class Raising(Producer):
    """Its export fails."""

    def __dlpack__(self, **wishes: Any) -> Any:
        """Fail, not for want of an argument."""
        raise RuntimeError("the fuzzer says no")


class Stateless(Producer):
    """Its export is none."""

    def __dlpack__(self, **wishes: Any) -> Any:
        """Nothing."""
        return None


class Spent(Producer):
    """Its export was taken by somebody else."""

    def __dlpack__(self, **wishes: Any) -> Any:
        """A capsule whose name says that it is used."""
        capsule = self._array.__dlpack__(**wishes)
        np.from_dlpack(Given(capsule))
        return capsule


class Given:
    """Gives a capsule away."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **wishes: Any) -> Any:
        """The capsule."""
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host."""
        return 1, 0


class Elsewhere(Producer):
    """It says that it lies on a device that there is none of."""

    def __dlpack_device__(self) -> Any:
        """A device of Vulkan's."""
        return 7, 0


class Odd(Producer):
    """Its device is no pair."""

    def __dlpack_device__(self) -> Any:
        """A word, and its export fails."""
        return "cpu"

    def __dlpack__(self, **wishes: Any) -> Any:
        """Fail."""
        raise BufferError("the fuzzer says no")


PRODUCERS: tuple[tuple[str, Callable[[np.ndarray], Any], str], ...] = (
    ("of another framework", Producer, "either"),
    ("of another framework", Producer, "either"),
    ("whose export raises", Raising, "refuse"),
    ("whose export is None", Stateless, "refuse"),
    ("whose export is spent", Spent, "refuse"),
    ("of a device of Vulkan's", Elsewhere, "either"),
    ("whose device is no pair", Odd, "refuse"),
)
"""What is done to a tensor, and whether it must then be refused; outputs cannot be allocated like an unknown tensor."""
