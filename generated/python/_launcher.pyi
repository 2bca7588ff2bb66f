"""The compiled launcher: checks arguments, fills a payload's problem struct and calls it. Generated; see codegen/ops.

A tensor is any object with DLPack's C exchange API or ``__dlpack__``; a packed argument (``q``, ``kv_cache``) is one
tensor ``[..., d_qk]`` or a tuple of latent and rope, such as ``[..., 512]`` and ``[..., 64]``. Refusals raise the classes given to
``set_errors`` as ``class(argument, got, accepts)``; a wrong number of arguments or an unknown name is a ``TypeError``.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Final, Protocol, TypeAlias, final, type_check_only

_Tensor: TypeAlias = Any
_Packed: TypeAlias = _Tensor | tuple[_Tensor, _Tensor]
_Problem: TypeAlias = Mapping[str, object]
"""Arguments and dimensions by name; a missing or None scalar takes its default, a missing tensor is absent."""

ABI_HASH: Final = "37a74483f1e08d68"
VERSION: Final[str]
"""The version of the core that the launcher is part of."""
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
        self,
        name: str,
        traits: Mapping[str, str | int],
        limits: Mapping[str, tuple[int, int, int] | tuple[int, int, int, bool]],
        device: str,
    ) -> Kernel:
        """A variant with what it accepts.

        Parameters
        ----------
        name : str
            One of ``names``.
        traits : Mapping[str, str | int]
            What is baked into the variant: the dtypes of the op's tensors, and the widths ``d_qk`` and ``d_v`` where they
            are not the default ones. ``{"q_dtype": "bf16", ...}``; other traits are ignored.
        limits : Mapping[str, tuple[int, int, int]]
            Minimum, maximum and step of dimensions and integer scalars; one that is missing is not limited. A fourth
            element says whether a plan sets them: an argument of another extent is then refused by the name ``plan``.
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

    def workspace_size(self, problem: _Problem, /) -> int:
        """Bytes of workspace that a launch of ``problem`` needs."""

    def plan_size(self, problem: _Problem, /) -> int:
        """Bytes of plan that a launch of ``problem`` needs."""

    def plan(self, problem: _Problem, out: Any, stream: int | None = None) -> None:
        """Write the plan of ``problem`` into the tensor ``out``."""

    def can_run(self, problem: _Problem, /) -> None:
        """Raise what keeps the payload from running ``problem``, or return."""

    def prepare(self, device: int, /) -> None:
        """Load what a launch on the device needs, so that the launch can be captured."""

@type_check_only
class DecodeLaunch(Protocol):
    """``Kernel.launch`` of a variant of decode."""

    def __call__(
        self,
        q: _Packed,
        kv_cache: _Packed,
        block_table: _Tensor | None,
        seq_lens: _Tensor,
        out: _Tensor,
        lse: _Tensor | None,
        cu_seqlens_q: _Tensor | None,
        token_seq_lens: _Tensor | None,
        softmax_scale: float,
        q_scale: float,
        kv_scale: float,
        out_scale: float,
        causal: bool,
        max_splits: int,
        batch_invariant: bool,
        max_q_len: int,
        plan: _Tensor | None,
        workspace: _Tensor | None,
        stream: int | None,
        /,
    ) -> tuple[int, int] | None: ...

@type_check_only
class SparseDecodeLaunch(Protocol):
    """``Kernel.launch`` of a variant of sparse_decode."""

    def __call__(
        self,
        q: _Packed,
        kv_cache: _Packed,
        indices: _Tensor,
        out: _Tensor,
        lse: _Tensor | None,
        max_logits: _Tensor | None,
        topk_length: _Tensor | None,
        attn_sink: _Tensor | None,
        extra_kv_cache: _Packed | None,
        extra_indices: _Tensor | None,
        extra_topk_length: _Tensor | None,
        softmax_scale: float,
        q_scale: float,
        kv_scale: float,
        out_scale: float,
        max_splits: int,
        plan: _Tensor | None,
        workspace: _Tensor | None,
        stream: int | None,
        /,
    ) -> tuple[int, int] | None: ...

@type_check_only
class SparsePrefillLaunch(Protocol):
    """``Kernel.launch`` of a variant of sparse_prefill."""

    def __call__(
        self,
        q: _Packed,
        kv: _Packed,
        indices: _Tensor,
        out: _Tensor,
        max_logits: _Tensor | None,
        lse: _Tensor | None,
        topk_length: _Tensor | None,
        attn_sink: _Tensor | None,
        extra_kv: _Packed | None,
        extra_indices: _Tensor | None,
        extra_topk_length: _Tensor | None,
        softmax_scale: float,
        q_scale: float,
        kv_scale: float,
        out_scale: float,
        plan: _Tensor | None,
        workspace: _Tensor | None,
        stream: int | None,
        /,
    ) -> tuple[int, int] | None: ...

@type_check_only
class MergeStatesLaunch(Protocol):
    """``Kernel.launch`` of a variant of merge_states."""

    def __call__(
        self,
        o: _Tensor,
        lse: _Tensor,
        counts: _Tensor | None,
        out: _Tensor,
        out_lse: _Tensor | None,
        plan: _Tensor | None,
        workspace: _Tensor | None,
        stream: int | None,
        /,
    ) -> tuple[int, int] | None: ...

@type_check_only
class StoreKvLaunch(Protocol):
    """``Kernel.launch`` of a variant of store_kv."""

    def __call__(
        self,
        latent: _Tensor,
        rope: _Tensor | None,
        kv_cache: _Packed,
        slot_mapping: _Tensor,
        scale: _Tensor | None,
        power_of_two_scales: bool,
        plan: _Tensor | None,
        workspace: _Tensor | None,
        stream: int | None,
        /,
    ) -> tuple[int, int] | None: ...

@type_check_only
class GatherKvLaunch(Protocol):
    """``Kernel.launch`` of a variant of gather_kv."""

    def __call__(
        self,
        kv_cache: _Packed,
        indices: _Tensor,
        out: _Packed,
        kv_scale: float,
        plan: _Tensor | None,
        workspace: _Tensor | None,
        stream: int | None,
        /,
    ) -> tuple[int, int] | None: ...

@type_check_only
class ToGlobalIndicesLaunch(Protocol):
    """``Kernel.launch`` of a variant of to_global_indices."""

    def __call__(
        self,
        req_id: _Tensor,
        block_table: _Tensor,
        token_indices: _Tensor,
        out: _Tensor,
        page_size: int,
        plan: _Tensor | None,
        workspace: _Tensor | None,
        stream: int | None,
        /,
    ) -> tuple[int, int] | None: ...
