"""Reads vLLM's signatures out of a wheel: ``python -m tests.runtime.compat.read_vllm vllm-0.33.0-....whl``.

What it prints is kept in ``vllm/0.33.0.json``. Names only: which classes and functions there are, which parameters they
take, how vLLM's own layer calls a backend's, and what its layers ask the backend of a layer for.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

CLASSES = {
    "vllm/v1/attention/backend.py": (
        "AttentionBackend", "AttentionMetadata", "AttentionMetadataBuilder", "AttentionCGSupport", "AttentionImplBase",
        "MLAAttentionImpl", "CommonAttentionMetadata", "MultipleOf",
    ),
    "vllm/model_executor/layers/attention/mla_attention.py": (
        "MLACommonBackend", "MLACommonMetadataBuilder", "MLACommonMetadata", "MLACommonDecodeMetadata",
        "MLACommonBaseImpl", "MLACommonImpl", "QueryLenSupport",
    ),
    "vllm/v1/attention/backends/mla/cpu_mla.py": ("CPUMLABackend", "CPUMLAImpl"),
    "vllm/v1/attention/backends/mla/amx_mla.py": ("AMXMLABackend", "AMXMLAMetadataBuilder", "AMXMLAImpl"),
    "vllm/v1/attention/backends/registry.py": ("AttentionBackendEnum",),
}  # fmt: skip
FUNCTIONS = {
    "vllm/v1/attention/backends/registry.py": ("register_backend",),
    "vllm/_custom_ops.py": ("concat_and_cache_mla",),
    "vllm/models/deepseek_v41/common/ops/cache_utils.py": ("quantize_and_insert_k_cache",),
    "vllm/v1/attention/backends/mla/sparse_utils.py": ("triton_convert_req_index_to_global_index",),
}
LAYER = "vllm/model_executor/layers/attention/mla_attention.py"
CALLS = ("impl_cls", "do_kv_cache_update", "forward_mqa", "_build_decode")
SPARSE_LAYERS = ("vllm/model_executor/layers/mla.py", "vllm/models/deepseek_v32/attention.py")


def read(wheel: Path) -> dict[str, Any]:
    """The signatures of one release."""
    with zipfile.ZipFile(wheel) as archive:

        def tree(path: str) -> ast.Module:
            return ast.parse(archive.read(path))

        release = "-".join(wheel.name.split("-")[:2])
        found: dict[str, Any] = {"release": release, "classes": {}, "functions": {}, "calls": {}}
        for path, names in CLASSES.items():
            for node in tree(path).body:
                if isinstance(node, ast.ClassDef) and node.name in names:
                    found["classes"][node.name] = {"module": module(path), **members(node)}
        for path, names in FUNCTIONS.items():
            for node in tree(path).body:
                if isinstance(node, ast.FunctionDef) and node.name in names:
                    found["functions"][node.name] = {"module": module(path), "parameters": parameters(node)}
        layer = tree(LAYER)
        for node in ast.walk(layer):
            if isinstance(node, ast.Call) and called(node) in CALLS:
                given = [keyword.arg for keyword in node.keywords if keyword.arg]
                found["calls"][called(node)] = {"positional": len(node.args), "keywords": given}
        sparse = [asked(tree(path)) for path in SPARSE_LAYERS if path in archive.namelist()]
        found["asked"] = {"any layer": sorted(asked(layer)), "a sparse layer": sorted(set().union(*sparse))}
    return found


def asked(layer: ast.Module) -> set[str]:
    """The attributes that a file reads of ``….impl``, the backend of a layer."""
    reads = (node for node in ast.walk(layer) if isinstance(node, ast.Attribute))
    return {node.attr for node in reads if isinstance(node.value, ast.Attribute) and node.value.attr == "impl"}


def module(path: str) -> str:
    """The module that a file is."""
    return path.removesuffix(".py").replace("/", ".")


def members(node: ast.ClassDef) -> dict[str, Any]:
    """Methods with their parameters, and the names of other attributes."""
    methods = {each.name: parameters(each) for each in node.body if isinstance(each, ast.FunctionDef)}
    targets = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    targets += [target for each in node.body if isinstance(each, ast.Assign) for target in each.targets]
    return {"methods": methods, "attributes": [each.id for each in targets if isinstance(each, ast.Name)]}


def parameters(node: ast.FunctionDef) -> list[str]:
    """Names in order; one that may be left out ends in ``=``."""
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    required = len(names) - len(node.args.defaults)
    return [name if i < required else f"{name}=" for i, name in enumerate(names)]


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


if __name__ == "__main__":
    json.dump(read(Path(sys.argv[1])), sys.stdout, indent=1)
    print()
