"""Host sides of the sm90 payload, compiled without nvcc."""

from __future__ import annotations

from pathlib import Path

from tests.support.native import host


def test_tensor_maps(tmp_path: Path) -> None:
    """What the driver is asked for, and how often."""
    host.check(
        tmp_path,
        "tests/sm90/tensor_map.cpp",
        "package/csrc/common/status.cpp",
        "package/csrc/sm90/common/tensor_map.cpp",
        "package/csrc/sm90/decode/problem.cpp",
        "package/csrc/sm90/scheduler/shape.cpp",
    )


def test_query_boxes(tmp_path: Path) -> None:
    """Which heads and tokens a tile of queries is, of any number of heads."""
    host.check(
        tmp_path,
        "tests/sm90/query_boxes.cpp",
        "package/csrc/common/status.cpp",
        "package/csrc/sm90/common/tensor_map.cpp",
        "package/csrc/sm90/decode/problem.cpp",
        "package/csrc/sm90/scheduler/shape.cpp",
    )


def test_uniform_plan(tmp_path: Path) -> None:
    """Equal requests, cut in closed form."""
    host.check(tmp_path, "tests/sm90/uniform_plan.cpp")


def test_divisor(tmp_path: Path) -> None:
    """Divisions by numbers known ahead."""
    host.check(tmp_path, "tests/sm90/divisor.cpp")


def test_workspace(tmp_path: Path) -> None:
    """Fewer heads may need more, but never more than the next multiple of 16, for which sgl_kernel's adapter asks."""
    host.check(
        tmp_path,
        "tests/sm90/workspace.cpp",
        "package/csrc/common/status.cpp",
        "package/csrc/sm90/common/tensor_map.cpp",
        "package/csrc/sm90/decode/problem.cpp",
        "package/csrc/sm90/scheduler/shape.cpp",
    )


def test_head_groups(tmp_path: Path) -> None:
    """Which launches of few query tokens are computed in groups of heads, and where these find their tensors."""
    host.check(
        tmp_path,
        "tests/sm90/head_groups.cpp",
        "package/csrc/common/status.cpp",
        "package/csrc/sm90/sparse_decode/head_groups.cpp",
    )
