"""Wheels to be damaged: every packaging test starts from a good one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cuobjdump import Cubin, DeviceCode, Kernel

from ci.release import check_wheels
from ci.release.checks import machine_code
from ci.release.wheelfile import Wheel
from tests.packaging.release.fake_wheels import (
    ARCHS,
    CUBIN,
    CUBIN_SHA256,
    KERNEL,
    PLATFORM,
    ROWS,
    VERSION,
    files_of,
    library,
    pack,
)

TOOLS = ("auditwheel", "abi3audit", "check-wheel-contents", "twine")
OWN = [name for name in check_wheels.CHECKS if name not in TOOLS]
ARCH = {payload: f"sm_{arch[2:].removesuffix('f')}" for payload, arch in ARCHS.items()}
"""The arch of each payload as ``cuobjdump`` names it, which does not tell a family from its first member."""


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    return library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def device(monkeypatch):
    """What ``cuobjdump`` finds, for a test to set."""
    found: dict[str, DeviceCode] = {}
    monkeypatch.setattr(machine_code, "device_code", lambda _: found["code"])
    return found


def cubin(arch: str, *symbols: str, code: tuple[str, ...] = ("HGMMA.64x64x16.F32.BF16 R24, R56, gdesc[UR4], R24 ;",)):
    """A cubin of decode kernels with such instructions."""
    name = "void mla::sm90::decode::kernel<(mla::DType)0>(mla::sm90::decode::Params)"
    kernels = (Kernel(symbol, name, CUBIN_SHA256, "REG:128 STACK:0 SHARED:1024", code) for symbol in symbols)
    return Cubin(arch, CUBIN, tuple(kernels))


class Case:
    """A good wheel's files, to be damaged, and what the checks say of them then."""

    def __init__(self, folder: Path, payload: str, binary: bytes) -> None:
        self.folder, self.row = folder, ROWS[payload]
        self.files = files_of(self.row, binary)
        self.info = f"{self.row.package}-{VERSION}.dist-info"
        self.tag = f"{self.row.tag}-{PLATFORM}"
        self.record: bytes | None = None

    def pack(self) -> Path:
        return pack(self.folder / f"{self.row.package}-{VERSION}-{self.tag}.whl", self.files, self.record)

    def own_faults(self) -> dict[str, list[str]]:
        """What every check that runs no program says; checks that say nothing are left out."""
        wheel = Wheel.read(self.pack())
        found = {name: check_wheels.listed(check_wheels.CHECKS[name], wheel, self.row) for name in OWN}
        return {name: problems for name, problems in found.items() if problems}

    def retag(self, platform: str) -> None:
        self.tag = f"{self.row.tag}-{platform}"
        self.replace("WHEEL", PLATFORM, platform)

    def replace(self, name: str, old: str, new: str) -> None:
        text = self.files[f"{self.info}/{name}"].decode()
        assert old in text
        self.files[f"{self.info}/{name}"] = text.replace(old, new).encode()

    def change(self, name: str, edit) -> None:
        """Edit a JSON document of the payload's folder, or, by its whole path, any other."""
        path = name if "/" in name else f"{self.row.folder}/{name}"
        document = json.loads(self.files[path])
        edit(document)
        self.files[path] = json.dumps(document).encode()

    @property
    def sbom(self) -> str:
        return f"{self.info}/sboms/{self.row.distribution}.cdx.json"


@pytest.fixture
def case(tmp_path, binary, device):
    """Makes the good wheel of a payload, with one kernel in one cubin."""

    def make(payload: str) -> Case:
        device["code"] = DeviceCode((cubin(ARCH.get(payload, ""), KERNEL),))
        return Case(tmp_path, payload, binary)

    return make
