"""Reads SGLang's signatures out of a wheel: ``python -m tests.runtime.compat.sglang.read_wheel WHEEL``.

What it prints of 0.5.23 is kept in ``0.5.23.json``. Names only: which classes and functions there are, which parameters
they take, which backends its lists hold, and how its own code calls a backend. Of large classes, only what is looked
for is kept.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.runtime.compat.read_vllm import called, members, module, parameters

ATTENTION = "sglang/srt/layers/attention/"
RUNNERS = "sglang/srt/model_executor/runner/"
OVERRIDES = "sglang/srt/arg_groups/overrides.py"
SPECULATIVE = "sglang/srt/speculative/"
DRAFTS = f"{SPECULATIVE}draft_utils.py"
DSA = f"{ATTENTION}dsa_backend.py"
CHOICES = "sglang/srt/arg_groups/choices.py"
MODELS = "sglang/srt/models/deepseek_common/"
CLASSES = {
    f"{ATTENTION}base_attn_backend.py": ("AttentionBackend",),
    f"{ATTENTION}flashinfer_mla_backend.py": ("FlashInferMLAAttnBackend",),
    f"{ATTENTION}flashmla_backend.py": ("FlashMLABackend", "FlashMLAMultiStepDraftBackend"),
    "sglang/srt/mem_cache/memory_pool.py": ("KVWriteLoc",),
    f"{MODELS}attention_backend_handler.py": ("AttentionBackendRegistry",),
    "sglang/srt/model_executor/forward_batch_info.py": ("ForwardMode",),
    "sglang/srt/plugins/hook_registry.py": ("HookRegistry", "HookType"),
}
FUNCTIONS = {
    f"{ATTENTION}attention_registry.py": ("register_attention_backend",),
    OVERRIDES: ("_page_size_default", "run_post_process_pass"),
    f"{ATTENTION}verify_mask.py": ("maybe_create_verify_mask",),
    "sglang/srt/configs/model_config.py": ("is_deepseek_dsa",),
    "sglang/srt/runtime_context.py": ("get_exec", "get_parallel", "get_spec"),
    f"{SPECULATIVE}ragged_verify.py": ("resolve_ragged_verify_layout",),
    "sglang/srt/plugins/__init__.py": ("load_plugins",),
}
LOOKED_FOR = {
    ("sglang/srt/model_executor/model_runner.py", "ModelRunner"): (
        "device", "dtype", "gpu_id", "is_draft_worker", "kv_cache_dtype", "kv_index_translator", "model_config",
        "page_size", "prefill_attention_backend_str", "req_to_token_pool", "token_to_kv_pool", "use_mla_backend",
    ),
    ("sglang/srt/model_executor/forward_batch_info.py", "ForwardBatch"): (
        "batch_size", "forward_mode", "req_pool_indices", "seq_lens", "seq_lens_cpu",
    ),
    ("sglang/srt/configs/model_config.py", "ModelConfig"): (
        "hf_config", "hf_text_config", "kv_lora_rank", "num_attention_heads", "qk_rope_head_dim",
    ),
    ("sglang/srt/layers/radix_attention.py", "RadixAttention"): (
        "head_dim", "layer_id", "logit_cap", "scaling", "sliding_window_size", "tp_q_head_num", "v_head_dim",
    ),
    (f"{ATTENTION}flashinfer_mla_backend.py", "FlashInferMLAAttnBackend"): (
        "forward_metadata", "max_context_len", "page_size", "token_to_kv_pool",
    ),
    (DSA, "DeepseekSparseAttnBackend"): (
        "__init__", "_forward_flashmla_kv", "_forward_flashmla_sparse", "dsa_decode_impl", "dsa_kv_cache_store_fp8",
        "dsa_prefill_impl", "kv_lora_rank", "num_q_heads", "qk_rope_head_dim",
    ),
    (DSA, "DSAMetadata"): ("dsa_cache_seqlens_int32",),
    (DRAFTS, "DraftBackendFactory"): (
        "_create_backend", "draft_model_runner", "speculative_num_steps", "topk",
    ),
    (f"{SPECULATIVE}ragged_verify.py", "RaggedVerifyLayout"): (
        "bs", "padded_to_bucket", "qo_indptr_device", "verify_lens",
    ),
    ("sglang/srt/mem_cache/kv_index_translator.py", "KVIndexTranslator"): ("reads_are_translated",),
    ("sglang/srt/mem_cache/memory_pool.py", "ReqToTokenPool"): ("req_to_token",),
    ("sglang/srt/mem_cache/memory_pool.py", "MLATokenToKVPool"): (
        "get_key_buffer", "set_kv_buffer", "set_mla_kv_buffer",
    ),
}  # fmt: skip
"""What our code reads of SGLang's objects: attributes, and methods that it calls or changes."""
FIELDS = {
    "sglang/srt/arg_groups/fields/spec.py": (
        "enable_multi_layer_eagle", "speculative_algorithm", "speculative_draft_attention_backend",
        "speculative_eagle_topk", "speculative_num_draft_tokens",
    ),
    "sglang/srt/arg_groups/fields/exec_.py": (
        "attention_backend", "decode_attention_backend", "enable_deterministic_inference",
    ),
    "sglang/srt/arg_groups/fields/schedule.py": ("page_size",),
    "sglang/srt/arg_groups/fields/model.py": ("kv_cache_dtype",),
}  # fmt: skip
GRAPHS = (
    "get_cuda_graph_seq_len_fill_value", "init_cuda_graph_state", "init_forward_metadata_in_graph",
    "init_forward_metadata_out_graph",
)  # fmt: skip
CALLS = {
    f"{ATTENTION}base_attn_backend.py": ("forward_decode", "forward_extend", "init_forward_metadata_out_graph"),
    f"{RUNNERS}decode_cuda_graph_runner.py": ("init_forward_metadata_out_graph", "init_cuda_graph_state"),
    f"{SPECULATIVE}eagle_worker_v2.py": ("init_forward_metadata",),
    f"{SPECULATIVE}eagle_worker_common.py": ("init_forward_metadata",),
    f"{SPECULATIVE}eagle_draft_cuda_graph_runner.py": GRAPHS,
    f"{SPECULATIVE}eagle_draft_extend_cuda_graph_runner.py": GRAPHS,
    f"{MODELS}attention_forward_methods/forward_mla.py": ("attn_mqa",),
    DSA: ("_forward_flashmla_kv", "_forward_flashmla_sparse"),
    DRAFTS: ("_create_backend",),
    OVERRIDES: ("fn",),
}


def read(wheel: Path) -> dict[str, Any]:
    """The signatures of one release."""
    with zipfile.ZipFile(wheel) as archive:
        trees: dict[str, ast.Module] = {}

        def tree(path: str) -> ast.Module:
            return trees.setdefault(path, ast.parse(archive.read(path)))

        found: dict[str, Any] = {"release": "-".join(wheel.name.split("-")[:2]), "classes": {}, "functions": {}}
        for path, names in CLASSES.items():
            for node in classes(tree(path), names):
                bases = [ast.unparse(base) for base in node.bases]
                found["classes"][node.name] = {"module": module(path), "bases": bases, **members(node)}
        for path, names in FUNCTIONS.items():
            for each in tree(path).body:
                if isinstance(each, ast.FunctionDef) and each.name in names:
                    found["functions"][each.name] = {"module": module(path), "parameters": parameters(each)}
        found["read"] = {
            name: {"module": module(path), "names": held(next(classes(tree(path), (name,))), wanted)}
            for (path, name), wanted in LOOKED_FOR.items()
        }
        found["fields"] = {name: place for path, names in FIELDS.items() for name, place in fields(tree(path), names)}
        found["calls"] = [call for path, names in CALLS.items() for call in calls(tree(path), path, names)]
        found["choices"] = dict(lists(tree(CHOICES)))
        found["apart"] = dict(lists(tree(f"{MODELS}utils.py")))
        found["plugins"] = dict(constants(tree("sglang/srt/plugins/__init__.py")))
        return found


def classes(tree: ast.Module, names: tuple[str, ...]) -> Iterator[ast.ClassDef]:
    """The classes of a module that have one of the names."""
    yield from (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in names)


def held(node: ast.ClassDef, wanted: tuple[str, ...]) -> dict[str, list[str] | None]:
    """Which of the names a class has, as a method with its parameters, or as an attribute."""
    own = members(node)
    kept = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
    }
    properties = {each.name for each in node.body if isinstance(each, ast.FunctionDef) and each.decorator_list}
    attributes = kept | properties | set(own["attributes"])
    methods = {name: names for name, names in own["methods"].items() if name not in properties}
    return {name: methods.get(name) for name in wanted if name in methods or name in attributes}


def fields(tree: ast.Module, wanted: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments of the server: the name space that each is in, and what its ``choices`` are written as."""
    for node in (each for each in tree.body if isinstance(each, ast.ClassDef)):
        place = next((value for name, value in constants(node) if name == "_NS_PATH"), None)
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id in wanted:
                written = [
                    ast.unparse(keyword.value)
                    for part in ast.walk(each.annotation)
                    if isinstance(part, ast.Call)
                    for keyword in part.keywords
                    if keyword.arg == "choices"
                ]
                yield each.target.id, {"place": place, "choices": written[0] if written else None}


def calls(tree: ast.Module, path: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """How a module calls functions by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in names:
            given = [keyword.arg for keyword in node.keywords if keyword.arg]
            yield {"in": module(path), "name": called(node), "positional": len(node.args), "keywords": given}


def lists(tree: ast.Module) -> Iterator[tuple[str, list[str] | str]]:
    """Lists of backends, and the functions that add to them."""
    for node in (each for each in tree.body if isinstance(each, ast.Assign)):
        (target,) = node.targets
        if "ATTENTION_BACKEND" in (name := ast.unparse(target)).upper():
            yield name, ast.literal_eval(node.value) if isinstance(node.value, ast.List) else ast.unparse(node.value)


def constants(node: ast.Module | ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Names that stand for a string."""
    for each in (part for part in node.body if isinstance(part, ast.Assign)):
        if isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
            yield ast.unparse(each.targets[0]), each.value.value


if __name__ == "__main__":
    json.dump(read(Path(sys.argv[1])), sys.stdout, indent=1)
    print()
