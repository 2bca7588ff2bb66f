"""The compiled launcher: checks arguments, fills a payload's problem struct and calls it.

A tensor is any object with DLPack's C exchange API or ``__dlpack__``; a packed argument (``q``, ``kv_cache``) is one
tensor ``[..., 576]`` or a tuple of latent ``[..., 512]`` and rope ``[..., 64]``. Refusals raise the classes given to
``set_errors`` as ``class(argument, got, accepts)``; a wrong number of arguments or an unknown name is a ``TypeError``.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Final, TypeAlias, final

Problem: TypeAlias = Mapping[str, object]
"""Arguments and dimensions by name; a missing or None scalar takes its default, a missing tensor is absent."""

ABI_HASH: Final[str]
OPS: Final[dict[str, tuple[str, ...]]]
"""The launch's arguments of each op in order: tensors, then scalars."""

def set_errors(errors: Mapping[str, type[Exception]], /) -> None:
    """Register the class of each status name, and of ``"payload"``, which is raised as ``class(message)``."""

@final
class Payload:
    """A payload's shared library.

    Raises
    ------
    PayloadError
        The file cannot be loaded, lacks a function of the ABI, or was built for another ABI.
    """

    def __new__(cls, path: str | PathLike[str]) -> Payload: ...
    @property
    def abi_hash(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]:
        """The names of the variants."""

    def kernel(
        self, name: str, dtypes: Mapping[str, str], limits: Mapping[str, tuple[int, int, int]], device: str
    ) -> Kernel:
        """A variant with what it accepts.

        Parameters
        ----------
        name : str
            One of ``names``.
        dtypes : Mapping[str, str]
            The dtype of each dtype trait of the op: ``{"q_dtype": "bf16", ...}``.
        limits : Mapping[str, tuple[int, int, int]]
            Minimum, maximum and step of dimensions and integer scalars; one that is missing is not limited.
        device : str
            ``"cpu"`` or ``"cuda"``.
        """

@final
class Kernel:
    """A variant of a payload that launches on tensors; ``Payload.kernel`` makes it."""

    def launch(self, *args: Any) -> tuple[int, int] | None:
        """Run on ``OPS[op]`` in order, then plan, workspace and stream.

        plan and workspace are contiguous tensors of any dtype, aligned to 16 bytes, or None. stream is a handle, or
        None for the stream on which the framework of the first tensor works; it has no effect on CPU. Other threads
        may run meanwhile. Where plan or workspace is None and the payload needs bytes of it, nothing is launched and
        the bytes that are lacking of each are returned.
        """

    def workspace_size(self, problem: Problem, /) -> int:
        """Bytes of workspace that a launch of ``problem`` needs."""

    def plan_size(self, problem: Problem, /) -> int:
        """Bytes of plan that a launch of ``problem`` needs."""

    def plan(self, problem: Problem, out: Any, stream: int | None = None) -> None:
        """Write the plan of ``problem`` into the tensor ``out``."""

    def can_run(self, problem: Problem, /) -> None:
        """Raise what keeps the payload from running ``problem``, or return."""

    def prepare(self, device: int, /) -> None:
        """Load what a launch on the device needs, so that the launch can be captured."""
