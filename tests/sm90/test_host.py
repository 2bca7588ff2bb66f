"""The tensor maps of the sm90 payload, compiled without nvcc: what the driver is asked for, and how often."""

from __future__ import annotations

from pathlib import Path

from tests.payloads import host


def test_host(tmp_path: Path) -> None:
    host.check(
        tmp_path,
        "tests/sm90/host.cpp",
        "package/csrc/common/status.cpp",
        "package/csrc/sm90/decode/tensor_map.cpp",
    )
