"""Small wheels with all that a real one has, made without a build, for tests that take one thing away."""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import subprocess
import zipfile
from pathlib import Path

from ci.rows import ROOT, Row, rows

VERSION = "0.1.0"
MACHINE = platform.machine()
PLATFORM = f"manylinux_2_28_{MACHINE}"
ABI_HASH = "0123456789abcdef"
COMMIT = "c" * 40
KERNEL = "_Z6kernelv"
CUBIN = b"a cubin"
CUBIN_SHA256 = hashlib.sha256(CUBIN).hexdigest()
ROWS = {row.payload: row for row in rows()}
ARCHS: dict[str, str] = {
    payload: json.loads((ROOT / "generated" / payload / "registry.json").read_text())["arch"]["name"]
    for payload in ROWS
}
"""The arch of each payload, such as ``sm90a``."""

Files = dict[str, bytes]


def library(folder: Path, source: str = "int mla_registry;", *, soname: str = "lib.so", links: tuple = ()) -> bytes:
    """A shared library that needs nothing but ``links``, which are pairs of a file and a linker script or None."""
    code, made = folder / "library.c", folder / soname
    code.write_text(source)
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-fno-builtin", f"-Wl,-soname,{soname}", "-o", made, code]
    subprocess.run([*command, *links], check=True)
    return made.read_bytes()


def json_bytes(document: object) -> bytes:
    return json.dumps(document).encode()


def files_of(row: Row, binary: bytes, version: str = VERSION, platform: str = PLATFORM) -> Files:
    """What a good wheel of ``row`` holds; ``binary`` is the payload's library."""
    info = f"{row.package}-{version}.dist-info"
    others = [one for one in ROWS.values() if not one.core]
    requires = [f'{one.distribution}=={version} ; extra == "{one.payload}"' for one in others]
    requires = requires if row.core else [f"mla-kernels=={version}"]
    metadata = [
        "Metadata-Version: 2.4",
        f"Name: {row.distribution}",
        f"Version: {version}",
        "Summary: a wheel for tests",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "Requires-Python: >=3.10",
        "Description-Content-Type: text/markdown",
        *(f"Provides-Extra: {one.payload}" for one in others if row.core),
        *(f"Requires-Dist: {requirement}" for requirement in requires),
        "",
        "A wheel for tests.",
    ]
    wheel = ["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: false", f"Tag: {row.tag}-{platform}"]
    kernels = [] if row.core else [{"symbol": KERNEL, "cubin_sha256": CUBIN_SHA256}]
    arch = ARCHS[row.payload]
    registry = {
        "payload": row.payload,
        "abi_hash": ABI_HASH,
        "arch": {"name": arch},
        "enumerators": {"DType": ["bf16"], "Load": [], "Schedule": []},
        "variants": [{"name": "decode", "op": "decode", "baked": {"q_dtype": "bf16"}, "tensor_cores": not row.core}],
    }
    parts = [] if row.core else [component("nvidia-cutlass"), component("nvidia-cuda-runtime")]
    files = {
        f"{row.package}/__init__.py": b"",
        row.library: binary,
        f"{row.folder}/registry.json": json_bytes(registry),
        f"{info}/METADATA": "\n".join(metadata).encode(),
        f"{info}/WHEEL": "\n".join(wheel).encode(),
        f"{info}/licenses/LICENSE": b"a licence",
        f"{info}/sboms/{row.distribution}.cdx.json": json_bytes(sbom(row, version, parts)),
    }
    if row.core:
        files["mla_kernels/py.typed"] = b""
    manifest = {
        "payload": row.payload,
        "version": version,
        "abi_hash": ABI_HASH,
        "commit": COMMIT,
        "dirty": False,
        "flags": {} if row.core else {"cuda": f"--generate-code=arch=compute_{arch[2:]},code=[sm_{arch[2:]}]"},
        "files": {
            path.rpartition("/")[2]: {"bytes": len(files[path]), "sha256": hashlib.sha256(files[path]).hexdigest()}
            for path in (row.library, f"{row.folder}/registry.json")
        },
        "variants": {"decode": {"kernels": kernels}},
    }
    files[f"{row.folder}/manifest.json"] = json_bytes(manifest)
    return files


def component(name: str) -> dict[str, object]:
    return {"type": "library", "name": name, "version": "1", "licenses": [{"license": {"id": "BSD-3-Clause"}}]}


def sbom(row: Row, version: str, parts: list) -> dict[str, object]:
    about = {"type": "library", "name": row.distribution, "version": version}
    about["licenses"] = [{"expression": "Apache-2.0"}]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": parts,
    }


def pack(path: Path, files: Files, record: bytes | None = None) -> Path:
    """Write a wheel with a right RECORD, or with ``record``."""
    (info,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    lines.append(f"{info}/RECORD,,")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", "\n".join(lines) if record is None else record)
    return path


def wheel(folder: Path, payload: str, binary: bytes = b"\x7fELF", version: str = VERSION) -> Path:
    """A good wheel of a payload; for an installation any library will do."""
    row = ROWS[payload]
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{row.package}-{version}-{row.tag}-{PLATFORM}.whl"
    return pack(folder / name, files_of(row, binary, version))
