"""Rewrites a payload's wheel so that its registry claims other compute capabilities: emulate.py WHEEL CAPABILITY..."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def main(wheel: Path, capabilities: list[str]) -> None:
    """Replace ``wheel`` by one whose payload runs on ``capabilities``."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "wheel", "unpack", f"--dest={folder}", str(wheel)], check=True)
        (unpacked,) = Path(folder).iterdir()
        (path,) = unpacked.glob("*/registry.json")
        registry = json.loads(path.read_text())
        for arch in (registry["arch"], *registry["archs"]):
            if arch["name"] == registry["arch"]["name"]:
                arch["capabilities"] = capabilities
        path.write_text(json.dumps(registry, indent=1))
        restate(path)
        wheel.unlink()
        command = [sys.executable, "-m", "wheel", "pack", f"--dest-dir={wheel.parent}", str(unpacked)]
        subprocess.run(command, check=True)


def restate(registry: Path) -> None:
    """Let the manifest beside a registry state its size and hash."""
    path = registry.with_name("manifest.json")
    manifest = json.loads(path.read_text())
    data = registry.read_bytes()
    manifest["files"][registry.name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
