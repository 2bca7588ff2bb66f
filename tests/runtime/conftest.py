"""Problems small enough to read, and payloads in temporary folders."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.api import lookup, selection
from mla_kernels.devices import driver, machine
from mla_kernels.payloads import discovery
from mla_kernels.payloads.distributions import GROUP

SCALE = 192**-0.5


class Decode:
    """Ragged decode over permuted pages of 16 tokens; ``arguments`` and ``call`` take replacements by name."""

    batch, q_len, num_heads, page_size, width = 3, 1, 4, 16, 3

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        generator = torch.Generator().manual_seed(0)
        num_pages = self.batch * self.width
        self.q = torch.randn(self.batch, self.q_len, self.num_heads, 576, generator=generator).to(dtype)
        self.kv_cache = torch.randn(num_pages, self.page_size, 576, generator=generator).to(dtype)
        self.block_table = torch.randperm(num_pages, generator=generator).int().reshape(self.batch, self.width)
        self.seq_lens = torch.tensor([0, 17, 48], dtype=torch.int32)

    def arguments(self, **changes: Any) -> dict[str, Any]:
        return {**vars(self), "softmax_scale": SCALE, **changes}

    def call(self, **changes: Any) -> Any:
        return mla.decode(**self.arguments(**changes))


@pytest.fixture
def problem() -> Decode:
    return Decode()


def forget() -> None:
    """Discover payloads and ask the driver again when next needed."""
    discovery.payloads.cache_clear()
    lookup._cache.clear()
    selection._cache.clear()
    selection._decodes.clear()
    machine.forget()


@pytest.fixture
def rediscover() -> Iterator[Callable[[], discovery.Payloads]]:
    """Forget what was discovered, before the next lookup and after the test."""

    def discover() -> discovery.Payloads:
        forget()
        return discovery.payloads()

    yield discover
    forget()


FAKE_CUDA = Path(__file__).parents[1] / "support" / "native" / "fake_cuda.c"
H200 = '{"NVIDIA H200", 9, 0}'
B200 = '{"NVIDIA B200", 10, 0}'
A100 = '{"NVIDIA A100", 8, 0}'


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Take another library for the driver."""

    def call(library: Path) -> None:
        monkeypatch.setattr(driver, "LIBRARY", str(library))
        forget()

    return call


@pytest.fixture
def play(tmp_path: Path, use: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., ctypes.CDLL]:
    """Play a driver that finds what the macros say."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def call(*gpus: str, **macros: object) -> ctypes.CDLL:
        if gpus:
            macros["DEVICES"] = ", ".join(gpus)
        library = tmp_path / f"libfake_cuda_{len(list(tmp_path.iterdir()))}.so"  # one that is loaded is not overwritten
        options = [f"-D{name}={value}" for name, value in macros.items()]
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *options]
        subprocess.run([*command, str(FAKE_CUDA), "-o", str(library)], check=True)
        use(library)
        return ctypes.CDLL(str(library))

    return call


CPU = Path(mla.__file__).parent / "payloads" / "cpu"


class Site:
    """A folder on the path in which payload distributions are installed, copies of the CPU payload by default."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(
        self, name: str, *, version: str = mla.__version__, registry: Any = None, library: Path | None = None
    ) -> Path:
        """Install payload ``name`` with a manifest and a RECORD that fit, and return its folder."""
        folder = self.path / f"mla_{name}_payload"
        folder.mkdir()
        (folder / "__init__.py").touch()
        text = registry if isinstance(registry, str) else json.dumps(registry or cpu_registry(name))
        (folder / "registry.json").write_text(text)
        shutil.copy(library or CPU / "libmla_cpu.so", folder / f"libmla_{name}.so")
        self.manifest(name)
        self.describe(f"mla-kernels-{name}", version, **{name: folder.name})
        self.record(name)
        return folder

    def manifest(self, name: str, **changes: Any) -> None:
        """Write what a build says of payload ``name`` as it lies there, with fields replaced."""
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
        """Write the ``dist-info`` of a distribution that holds payloads, each with its module; its folder."""
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        entries = "".join(f"{name} = {module}\n" for name, module in payloads.items())
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}")
        return info

    def record(self, name: str) -> None:
        """Write the RECORD of payload ``name`` as it lies there."""
        (info,) = self.path.glob(f"mla_kernels_{name}-*.dist-info")
        rows = [f"{info.name}/RECORD,,"]
        for path in sorted((self.path / f"mla_{name}_payload").glob("*.*")):
            digest = urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
            rows.append(f"{path.relative_to(self.path)},sha256={digest},{path.stat().st_size}")
        (info / "RECORD").write_text("\n".join(rows) + "\n")


def cpu_registry(payload: str = "cpu") -> dict[str, Any]:
    """The CPU payload's registry, parsed, for a payload and an arch called ``payload``."""
    document: dict[str, Any] = json.loads((CPU / "registry.json").read_text())
    document["payload"] = document["arch"]["name"] = payload
    for row in document["variants"]:
        row["arch"] = payload
    return document


def sm90_registry() -> dict[str, Any]:
    """The CPU payload's registry in the clothes of sm90."""
    document = cpu_registry("sm90")
    document["arch"] |= {"name": "sm90a", "device": "cuda", "capabilities": ["9.0"]}
    for row in document["variants"]:
        row["arch"] = "sm90a"
    return document


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(tmp_path)
    return Site(tmp_path)
