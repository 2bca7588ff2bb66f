"""Installs payloads in a temporary folder, and makes registries for them."""

from __future__ import annotations

import hashlib
import json
import shutil
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import mla_kernels as mla
from mla_kernels.payloads.distributions import GROUP, owner

CPU = Path(mla.__file__).parent / "payloads" / "cpu"


class Site:
    """A folder on the path in which payload distributions are installed, copies of the CPU payload by default."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(
        self,
        name: str,
        *,
        version: str = mla.__version__,
        registry: Any = None,
        library: Path | None = None,
        distribution: str | None = None,
    ) -> Path:
        """Install payload ``name`` with a manifest and a RECORD that fit, and return its folder.

        Its distribution is by default the one that may bring a payload of this name.
        """
        folder = self.path / f"mla_{name}_payload"
        folder.mkdir()
        (folder / "__init__.py").touch()
        text = registry if isinstance(registry, str) else json.dumps(registry or cpu_registry(name))
        (folder / "registry.json").write_text(text)
        shutil.copy(library or CPU / "libmla_cpu.so", folder / f"libmla_{name}.so")
        self.manifest(name)
        info = self.describe(distribution or owner(name), version, **{name: folder.name})
        self.record(name, info)
        return folder

    def manifest(self, name: str, **changes: Any) -> None:
        """Write the manifest of payload ``name`` for its files as they are, with fields replaced."""
        folder = self.path / f"mla_{name}_payload"
        files = {path.name: path.read_bytes() for path in (folder / f"libmla_{name}.so", folder / "registry.json")}
        document = {
            "payload": name,
            "version": mla.__version__,
            "abi_hash": cpu_registry()["abi_hash"],
            "commit": "0123456789abcdef0123456789abcdef01234567",
            "dirty": False,
            "files": {
                file: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for file, data in files.items()
            },
            "variants": {row["name"]: {"kernels": []} for row in cpu_registry()["variants"]},
        }
        (folder / "manifest.json").write_text(json.dumps(document | changes))

    def describe(self, distribution: str, version: str, **payloads: str) -> Path:
        """Write the ``dist-info`` of a distribution of payloads, each with its module, and return its folder."""
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        entries = "".join(f"{name} = {module}\n" for name, module in payloads.items())
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}")
        return info

    def record(self, name: str, info: Path | None = None) -> None:
        """Write the RECORD of payload ``name`` for its files as they are."""
        if info is None:
            (info,) = self.path.glob(f"mla_kernels_{name}-*.dist-info")
        rows = [f"{info.name}/RECORD,,"]
        for path in sorted((self.path / f"mla_{name}_payload").glob("*.*")):
            digest = urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
            rows.append(f"{path.relative_to(self.path)},sha256={digest},{path.stat().st_size}")
        (info / "RECORD").write_text("\n".join(rows) + "\n")


def cpu_registry(payload: str = "cpu") -> dict[str, Any]:
    """Return the CPU payload's registry for a payload and an arch called ``payload``."""
    document: dict[str, Any] = json.loads((CPU / "registry.json").read_text())
    document["payload"] = document["arch"]["name"] = payload
    for row in document["variants"]:
        row["arch"] = payload
    return document


def sm90_registry() -> dict[str, Any]:
    """Return the CPU payload's registry as if it were sm90's."""
    document = cpu_registry("sm90")
    document["arch"] |= {"name": "sm90a", "device": "cuda", "capabilities": ["9.0"]}
    for row in document["variants"]:
        row["arch"] = "sm90a"
    return document
