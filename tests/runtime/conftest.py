"""Fixtures of the package's tests: a small problem, installed payloads, a driver that finds what it is told."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mla_kernels import _launcher
from mla_kernels.api import lookup, selection
from mla_kernels.devices import driver, machine
from mla_kernels.errors import STATUS
from mla_kernels.payloads import discovery

from tests.runtime.site import Site
from tests.runtime.small_decode import Decode
from tests.support.native import fake_cuda
from tests.support.native.build import build
from tests.support.native.noop import Noop


@pytest.fixture
def problem() -> Decode:
    return Decode()


def forget() -> None:
    """Forget payloads and devices, so that both are asked for again when next needed."""
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


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return a function that takes another library for the CUDA driver."""

    def call(library: Path) -> None:
        monkeypatch.setattr(driver, "LIBRARY", str(library))
        forget()

    return call


@pytest.fixture
def play(tmp_path: Path, use: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., ctypes.CDLL]:
    """Return a function that puts a driver in place of CUDA's, which finds the GPUs that it is given."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def call(*gpus: str, **macros: object) -> ctypes.CDLL:
        # A library that is loaded cannot be overwritten, so each has a name of its own.
        library = tmp_path / f"libfake_cuda_{len(list(tmp_path.iterdir()))}.so"
        fake_cuda.build(library, *gpus, **macros)
        use(library)
        return ctypes.CDLL(str(library))

    return call


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(tmp_path)
    return Site(tmp_path)


@pytest.fixture(scope="session")
def noop_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The payload that computes nothing, compiled once."""
    return build(tmp_path_factory.mktemp("payload"))


@pytest.fixture
def noop(noop_library: Path) -> Noop:
    """That payload, which asks for no plan and no workspace and remembers no call."""
    _launcher.set_errors(STATUS)
    payload = Noop(noop_library)
    payload.record.variant = -1
    return payload
