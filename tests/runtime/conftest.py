"""Problems small enough to read, and payloads in temporary folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import devices, discovery, resolve, selection

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


@pytest.fixture
def rediscover() -> Iterator[Callable[[], discovery.Payloads]]:
    """Forget what was discovered, before the next lookup and after the test."""

    def forget() -> None:
        discovery.payloads.cache_clear()
        resolve._cache.clear()
        selection._cache.clear()
        selection._decodes.clear()
        devices.forget()

    def discover() -> discovery.Payloads:
        forget()
        return discovery.payloads()

    yield discover
    forget()


class Site:
    """A folder on the path in which payload distributions are installed, copies of the CPU payload by default."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(
        self, name: str, *, version: str = mla.__version__, registry: Any = None, library: Path | None = None
    ) -> Path:
        """Install payload ``name`` and return its folder."""
        cpu = discovery.load(next(iter(entry_points(group=discovery.GROUP, name="cpu"))))
        folder = self.path / f"mla_{name}_payload"
        folder.mkdir()
        (folder / "__init__.py").touch()
        text = registry if isinstance(registry, str) else json.dumps(registry or cpu_registry(name))
        (folder / "registry.json").write_text(text)
        shutil.copy(library or cpu.folder / "libmla_cpu.so", folder / f"libmla_{name}.so")
        info = self.path / f"mla_kernels_{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mla-kernels-{name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[{discovery.GROUP}]\n{name} = mla_{name}_payload\n")
        return folder


def cpu_registry(payload: str = "cpu") -> dict[str, Any]:
    """The CPU payload's registry, parsed, for a payload and an arch called ``payload``."""
    (entry,) = entry_points(group=discovery.GROUP, name="cpu")
    path = discovery.load(entry).folder / "registry.json"
    document: dict[str, Any] = json.loads(path.read_text())
    document["payload"] = document["arch"]["name"] = payload
    for row in document["variants"]:
        row["arch"] = payload
    return document


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(tmp_path)
    return Site(tmp_path)
