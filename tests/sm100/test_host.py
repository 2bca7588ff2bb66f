"""The host side of the sm100 payload, compiled without nvcc, against tables worked by hand."""

from __future__ import annotations

from pathlib import Path

from tests.support.native import host


def test_host(tmp_path: Path) -> None:
    host.check(
        tmp_path,
        "tests/sm100/host.cpp",
        "package/csrc/common/status.cpp",
        "package/csrc/sm100/cutlass_mla/attention_problem.cpp",
        "package/csrc/sm100/cutlass_mla/workspace.cpp",
        "package/csrc/sm100/decode/problem.cpp",
        "package/csrc/sm100/sparse_decode/problem.cpp",
    )
