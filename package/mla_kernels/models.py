"""Models with MLA, and the configs that serve them: ``model("DeepSeek-V3").served(arch="sm90a")``."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from mla_kernels._models import MODELS
from mla_kernels._types import DTYPES
from mla_kernels.errors import ValueRangeError
from mla_kernels.payloads.registry import Value
from mla_kernels.resolve.search import variants

EVERY = "every"
"""What ``Model.unserved`` has in place of an arch where it means all of them."""


@dataclass(frozen=True, slots=True)
class Model:
    """The attention of a model's layers, in the absorbed form.

    Attributes
    ----------
    name, organisation : str
    heads : int
        Query heads of the whole model; tensor parallelism divides them.
    d_qk, d_v : int
        Columns of a query (latent and rope), and of its value (the latent).
    formats : tuple[str, ...]
        How engines store its cache; a name that is no ``kv_dtype`` is a format that no kernel here reads.
    source : str
        Where these numbers were read.
    topk : int
        Tokens that a query attends to; 0 where it attends to all of them.
    window : int
        Those of them that are the latest tokens, a sliding window; 0 where there is none.
    q_lens : tuple[int, ...]
        Query tokens of a request in a decode step that verifies what the model's own draft heads (multi-token
        prediction) propose in one pass: 1 + drafts, for each kind of heads that was released. ``(1,)`` where the model
        has no such heads, and empty where no source says it.
    sink : bool
        Whether the softmax has a learned logit per head without a value (``attn_sink``).
    extra_format : str
        How engines store its second cache, where that is another format than the first one's; otherwise empty.
    also : tuple[str, ...]
        Other models with the same attention.
    unserved : tuple[tuple[str, str], ...]
        Archs of which no kernel serves it at some degree of tensor parallelism, or ``EVERY``, and why.
    sources : tuple[tuple[str, str], ...]
        Fields that were read elsewhere than at ``source``, and where.
    """

    name: str
    organisation: str
    heads: int
    d_qk: int
    d_v: int
    formats: tuple[str, ...]
    source: str
    topk: int
    window: int
    q_lens: tuple[int, ...]
    sink: bool
    extra_format: str
    also: tuple[str, ...]
    unserved: tuple[tuple[str, str], ...]
    sources: tuple[tuple[str, str], ...]

    def reason(self, arch: str) -> str | None:
        """Why no kernel of ``arch`` serves the model at some degree of tensor parallelism, or None."""
        reasons = dict(self.unserved)
        return reasons.get(arch, reasons.get(EVERY))

    def configs(
        self, *, arch: str | None = None, tensor_parallel: int = 1, q_len: int | None = None
    ) -> tuple[dict[str, Value], ...]:
        """What a rank looks up: one config for each op and cache format.

        Parameters
        ----------
        arch : str, optional
            Of the devices; left open by default, so that a lookup takes the current device's.
        tensor_parallel : int
            Ranks that the heads are divided among.
        q_len : int, optional
            Query tokens of each request in a decode step, such as one of ``q_lens``; left open by default.

        Returns
        -------
        tuple of dict
            The fields of ``lookup``, without the type of Q: it is bf16, or e4m3 where the kernel takes that only.

        Raises
        ------
        ValueRangeError
            ``tensor_parallel`` does not divide the heads, or ``q_len`` is below 1.

        Examples
        --------
        >>> from mla_kernels.models import model
        >>> model("DeepSeek-V3.2").configs(arch="cpu", tensor_parallel=8)[1]["kv_dtype"]
        'fp8_ds_mla'
        """
        if tensor_parallel < 1 or self.heads % tensor_parallel:
            raise ValueRangeError("tensor_parallel", str(tensor_parallel), f"a divisor of {self.heads}")
        if q_len is not None and q_len < 1:
            raise ValueRangeError("q_len", str(q_len), "an integer from 1")
        rank: dict[str, Value] = {} if arch is None else {"arch": arch}
        rank |= {"out_dtype": "bf16", "num_heads": self.heads // tensor_parallel, "d_qk": self.d_qk, "d_v": self.d_v}
        step: dict[str, Value] = {} if q_len is None else {"q_len": q_len}
        if not self.topk:
            return tuple({"op": "decode", "kv_dtype": name, **rank, **step} for name in self.formats)
        rank["topk"] = self.topk
        extra: dict[str, Value] = {"extra_kv_dtype": self.extra_format} if self.extra_format else {}
        decodes = ({"op": "sparse_decode", "kv_dtype": name, **extra, **rank, **step} for name in self.formats)
        return (*decodes, {"op": "sparse_prefill", "kv_dtype": "bf16", **rank})

    def served(
        self, *, arch: str | None = None, tensor_parallel: int = 1, q_len: int | None = None
    ) -> tuple[dict[str, Value], ...]:
        """Those of ``configs`` that a variant of the installed payloads serves; parameters as there."""
        posed = self.configs(arch=arch, tensor_parallel=tensor_parallel, q_len=q_len)
        return tuple(config for config in posed if config["kv_dtype"] in DTYPES and variants(**config))


@cache
def models() -> tuple[Model, ...]:
    """Every model that the matrix knows, in its order."""
    return tuple(Model(*row) for row in MODELS)


def model(name: str) -> Model:
    """The model of that name, or the one whose attention it shares; upper and lower case are the same.

    Parameters
    ----------
    name : str
        Such as ``DeepSeek-R1``; an organisation before it, as in ``deepseek-ai/DeepSeek-R1``, has no effect.

    Returns
    -------
    Model

    Raises
    ------
    ValueRangeError
        The matrix has no such model; the message names the closest.
    """
    wanted = name.rpartition("/")[2].lower()
    named = {known.lower(): (known, each) for each in models() for known in (each.name, *each.also)}
    if wanted in named:
        return named[wanted][1]
    close = [*get_close_matches(wanted, named), *(known for known in named if wanted in known or known in wanted)]
    told = [named[known][0] for known in dict.fromkeys(close or [*named][:3])]
    raise ValueRangeError("model", repr(name), f"{', '.join(told)}, or another that `mla-kernels models` lists")
