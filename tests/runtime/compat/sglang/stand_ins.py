"""A package ``sglang`` of stand-ins, made from the names that ``read_wheel`` read of a release.

Each function takes the parameters that the release has, and an object of SGLang's has the attributes that it has there.
"""

from __future__ import annotations

import abc
import enum
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

READ = Path(__file__).parent
RELEASES = {path.stem: json.loads(path.read_text()) for path in sorted(READ.glob("*.json"))}
OURS, DRAFTS, DECODING = (f"mla_kernels.compat._sglang.{name}" for name in ("backend", "drafts", "decoding"))
"""Our modules that import SGLang: they are imported anew beside each release."""
APART = "sglang.srt.models.deepseek_common.utils"
"""The module whose list names the backends that are handed queries and latents as two tensors each."""


class Engine:
    """What is registered with the stand-ins, and what they were asked.

    Attributes
    ----------
    names : dict
        What was read of the release.
    modules : dict
    table : dict
        SGLang's table of attention backends.
    hooks : list
        Functions of SGLang that are to be changed, and how.
    beneath : list
        Calls of the class beneath ours, by the name of the method, with the arguments.
    spec, parallel, deterministic : SimpleNamespace
        The published arguments of the server.
    """

    def __init__(self, release: str) -> None:
        self.names = RELEASES[release]
        self.modules: dict[str, ModuleType] = {}
        self.table: dict[str, Any] = {}
        self.hooks: list[tuple[str, Any, str]] = []
        self.handlers: dict[str, str] = {"flashmla": "as FlashMLA's", "triton": "as Triton's"}
        self.beneath: list[tuple[str, dict[str, Any]]] = []
        fields = {name: each["place"] for name, each in self.names["fields"].items()}
        self.spec = SimpleNamespace(**{name: None for name, place in fields.items() if place == "spec"})
        self.deterministic = SimpleNamespace(
            **{name: False for name, at in fields.items() if at == "exec.deterministic"}
        )
        self.parallel = SimpleNamespace(attn_tp_size=1, attn_dcp_size=1)

    def module(self, name: str) -> Any:
        """A module of SGLang's, made where it is missing."""
        return self.modules.setdefault(name, ModuleType(name))

    def apart(self) -> list[str]:
        """The backends that are handed queries and latents as two tensors each, as they are now."""
        return list(self.module(APART).FORWARD_ABSORB_CORE_ATTENTION_BACKENDS)

    def choices(self) -> dict[str, list[str]]:
        """The lists of backends as they are now."""
        held = vars(self.module("sglang.srt.arg_groups.choices"))
        return {name: list(value) for name, value in held.items() if isinstance(value, list)}

    def hooked(self, target: str, when: str) -> list[Any]:
        """The functions that are registered to change one of SGLang's."""
        return [hook for name, hook, at in self.hooks if (name, at) == (target, when)]

    def record(self, name: str, **values: Any) -> Any:
        """An object with exactly the attributes that were found of a class."""
        assert values.keys() == self.names["read"][name]["names"].keys(), name
        return SimpleNamespace(**values)


def installed(monkeypatch: pytest.MonkeyPatch, release: str) -> Iterator[Engine]:
    """Install stand-ins of a release, and yield what is registered with them."""
    engine = Engine(release)
    _functions(engine)
    _classes(engine)
    choices = engine.module("sglang.srt.arg_groups.choices")
    for name, value in engine.names["choices"].items():
        setattr(choices, name, list(value) if isinstance(value, list) else eval(value, vars(choices)))
    apart = {name: list(value) for name, value in engine.names["apart"].items()}
    vars(engine.module(APART)).update(apart)
    engine.module("sglang.version").__version__ = release
    for name in list(engine.modules):
        while name := name.rpartition(".")[0]:
            engine.module(name)
    for name, module in engine.modules.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(engine.modules[parent], child, module)
        monkeypatch.setitem(sys.modules, name, module)
    for name in (OURS, DRAFTS, DECODING):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield engine
    for name in (OURS, DRAFTS, DECODING):
        sys.modules.pop(name, None)


@pytest.fixture(params=list(RELEASES))
def sglang(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Install a package ``sglang`` of stand-ins of a release, and return what is registered with it."""
    yield from installed(monkeypatch, request.param)


def signed(parameters: list[str], body: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes the parameters of SGLang's, and hands them on by name."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [
            inspect.Parameter(each.rstrip("="), kind, default=None if each.endswith("=") else inspect.Parameter.empty)
            for each in parameters
        ]
    )

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return body(**bound.arguments)

    return call


def _functions(engine: Engine) -> None:
    def register(name: str) -> Any:
        return lambda made: engine.table.setdefault(name, made)

    bodies: dict[str, Callable[..., Any]] = {
        "register_attention_backend": register,
        "_page_size_default": lambda view: {} if view.page_size else {"page_size": 1},
        "is_deepseek_dsa": lambda config: hasattr(config, "index_topk"),
        "get_spec": lambda: engine.spec,
        "get_parallel": lambda: engine.parallel,
        "resolve_ragged_verify_layout": lambda forward_batch: getattr(forward_batch, "layout", None),
        "get_exec": lambda: SimpleNamespace(deterministic=engine.deterministic),
        "maybe_create_verify_mask": SimpleNamespace,
    }
    for name, body in bodies.items():
        read = engine.names["functions"][name]
        made = signed(read["parameters"], body) if read["parameters"] else body  # others are taken by name only
        setattr(engine.module(read["module"]), name, made)


def _classes(engine: Engine) -> None:
    described = engine.names["classes"]

    def put(name: str, made: Any) -> Any:
        setattr(engine.module(described[name]["module"]), name, made)
        return made

    def method(owner: str, name: str, body: Callable[..., Any]) -> Any:
        return signed([each for each in described[owner]["methods"][name] if each != "cls"], body)

    def register(target: str, hook: Any, hook_type: Any) -> None:
        engine.hooks.append((target, hook, hook_type.name))

    def handle(backend_name: str, handler_func: Any) -> None:
        engine.handlers[backend_name] = handler_func

    def handler(backend_name: str) -> str:
        return engine.handlers[backend_name]

    hooks = {"register": staticmethod(method("HookRegistry", "register", register))}
    handlers = {
        "register": staticmethod(method("AttentionBackendRegistry", "register", handle)),
        "get_handler": staticmethod(method("AttentionBackendRegistry", "get_handler", handler)),
    }
    put("HookType", enum.Enum("HookType", described["HookType"]["attributes"]))
    put("HookRegistry", type("HookRegistry", (), hooks))
    put("AttentionBackendRegistry", type("AttentionBackendRegistry", (), handlers))
    loc = staticmethod(method("KVWriteLoc", "for_batch", lambda forward_batch, **_: forward_batch.out_cache_loc))
    put("KVWriteLoc", type("KVWriteLoc", (), {"for_batch": loc}))
    base = dict.fromkeys(described["AttentionBackend"]["attributes"])
    base |= {name: signed(names, lambda **_: None) for name, names in described["AttentionBackend"]["methods"].items()}
    put("AttentionBackend", type("AttentionBackend", (), base))
    put("FlashInferMLAAttnBackend", type("FlashInferMLAAttnBackend", (), base | _beneath(engine, method)))
    put("FlashMLABackend", abc.ABCMeta("FlashMLABackend", (), {}))
    put("ForwardMode", _modes(described["ForwardMode"]))


def _beneath(engine: Engine, method: Callable[..., Any]) -> dict[str, Any]:
    """The class beneath ours: it keeps what ours reads of it, and tells what it is asked."""

    def told(name: str) -> Any:
        def body(self: Any, **given: Any) -> str:
            engine.beneath.append((name, given))
            return f"by {name} of the class beneath"

        return body

    def start(self: Any, **given: Any) -> None:
        engine.beneath.append(("__init__", given))
        runner = given["model_runner"]
        held = {"forward_metadata": None, "max_context_len": 4096}
        held |= {"page_size": runner.page_size, "token_to_kv_pool": runner.token_to_kv_pool}
        vars(self).update(vars(engine.record("FlashInferMLAAttnBackend", **held)))

    names = engine.names["classes"]["FlashInferMLAAttnBackend"]["methods"]
    made = {name: method("FlashInferMLAAttnBackend", name, told(name)) for name in names}
    return made | {"__init__": method("FlashInferMLAAttnBackend", "__init__", start)}


def _modes(described: dict[str, Any]) -> Any:
    """SGLang's modes of a batch, with the questions that our code asks."""
    modes = enum.Enum("ForwardMode", described["attributes"])
    assert {"is_decode_or_idle", "is_target_verify", "is_draft_extend_v2"} <= described["methods"].keys()
    modes.is_decode_or_idle = lambda self: self.name in {"DECODE", "IDLE"}  # type: ignore[attr-defined]
    modes.is_target_verify = lambda self: self.name == "TARGET_VERIFY"  # type: ignore[attr-defined]
    modes.is_draft_extend_v2 = lambda self: self.name == "DRAFT_EXTEND_V2"  # type: ignore[attr-defined]
    return modes


class Pool:
    """SGLang's pool of latents: slots of one head, poisoned until they are written."""

    def __init__(self, engine: Engine, slots: int, width: int, dtype: torch.dtype, device: str) -> None:
        names = engine.names["read"]["MLATokenToKVPool"]["names"]
        self.rows = torch.full((slots, 1, width), torch.nan, device=device).to(dtype)
        self.set_kv_buffer = signed(names["set_kv_buffer"][1:], self._write)
        self.set_mla_kv_buffer = signed(names["set_mla_kv_buffer"][1:], self._write_apart)
        self.get_key_buffer = signed(names["get_key_buffer"][1:], lambda layer_id: self.rows)

    def _write(self, layer: Any, loc_info: Any, cache_k: torch.Tensor, cache_v: torch.Tensor, **_: Any) -> None:
        assert cache_v.data_ptr() == cache_k.data_ptr(), "the value is the first columns of the key"
        self.rows[loc_info] = cache_k.to(self.rows.dtype)

    def _write_apart(
        self, layer: Any, loc_info: Any, cache_k_nope: torch.Tensor, cache_k_rope: torch.Tensor, **_: Any
    ) -> None:
        self.rows[loc_info] = torch.cat([cache_k_nope, cache_k_rope], -1).to(self.rows.dtype)
