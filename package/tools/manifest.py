"""Writes ``manifest.json`` beside a payload's library: what this build compiled, with what, from which sources.

``registry.json`` is rendered from rows; this is what only a build knows. CMake runs it when it installs a payload.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuobjdump
from sources import sources_sha256
from variant_kernels import VariantKernels

PACKAGE = Path(__file__).parents[1]


def main() -> None:
    """Describe the payload in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("payload")
    parser.add_argument("folder", type=Path, help="holds the library and its registry.json")
    parser.add_argument("--generated", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--cxx", required=True, help="the C++ compiler and its version")
    parser.add_argument("--cxx-flags", default="")
    parser.add_argument("--nvcc", type=Path, help="the CUDA compiler; cuobjdump and nvdisasm are beside it")
    parser.add_argument("--cuda-flags", default="")
    parser.add_argument("--overridden", action="store_true", help="headers of tests stand in for those of csrc")
    options = parser.parse_args()
    try:
        told = manifest(options)
    except cuobjdump.CuobjdumpError as error:
        sys.exit(f"no manifest, because the library's machine code cannot be read: {error}")
    (options.folder / "manifest.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def manifest(options: argparse.Namespace) -> dict[str, Any]:
    """Return the manifest of the payload that the options name."""
    folder: Path = options.folder
    registry = json.loads((folder / "registry.json").read_text(encoding="utf-8"))
    library = folder / f"libmla_{options.payload}.so"
    found = VariantKernels(registry, cuobjdump.read(library, options.nvcc.parent).kernels if options.nvcc else [])
    compilers, flags = {"cxx": options.cxx}, {"cxx": options.cxx_flags.strip()}
    if options.nvcc:
        compilers["cuda"] = nvcc_version(options.nvcc)
        flags["cuda"] = options.cuda_flags
        require_kernels(found, plain=options.overridden)
    commit, dirty = commit_of(options.generated)
    return {
        "payload": options.payload,
        "version": options.version,
        "abi_hash": registry["abi_hash"],
        "commit": commit,
        "dirty": dirty,
        "sources_sha256": None if options.overridden else sources_sha256(PACKAGE, options.generated, options.payload),
        **json.loads((options.generated / "provenance.json").read_text(encoding="utf-8")),
        "compilers": compilers,
        "flags": flags,
        "files": {path.name: file_facts(path) for path in (library, folder / "registry.json")},
        "variants": {
            variant["name"]: {
                "config": {"op": variant["op"], "arch": variant["arch"], **variant["baked"], **variant["accepts"]},
                "kernels": [kernel.as_dict() for kernel in found.launched[variant["name"]]],
            }
            for variant in registry["variants"]
        },
        "shared": [kernel.as_dict() for kernel in found.shared],
    }


def require_kernels(found: VariantKernels, *, plain: bool) -> None:
    """Stop the build where a variant has no kernel, a kernel no variant, or a product no tensor cores.

    Where a test puts ``plain`` kernels in place of ours, they may do without tensor cores.
    """
    problems = [*found.unpaired(), *([] if plain else found.without_tensor_cores())]
    if problems:
        sys.exit("the library does not hold what registry.json says:\n" + "\n".join(problems))


def file_facts(path: Path) -> dict[str, Any]:
    """Return the size and the hash of a file."""
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def nvcc_version(nvcc: Path) -> str:
    """Return the version of ``nvcc``, such as ``13.4.92``."""
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d+(?:\.\d+)+)", told)
    return found[1] if found else told.strip().splitlines()[-1]


def commit_of(folder: Path) -> tuple[str | None, bool]:
    """Return the git commit of the sources and whether they differ from it; ``None`` for an unpacked archive.

    ``MLA_KERNELS_COMMIT`` says it for sources that were copied out of their repository: a hash, and ``-dirty``.
    """
    if stated := os.environ.get("MLA_KERNELS_COMMIT"):
        return stated.removesuffix("-dirty"), stated.endswith("-dirty")
    git = ["git", "-C", str(folder)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return None, False
    status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    return head.stdout.strip(), bool(status.stdout.strip())


if __name__ == "__main__":
    main()
