"""The sm100 payload but for CUTLASS's kernels, compiled without nvcc."""

from __future__ import annotations

from pathlib import Path

from tests.support.native import host, on_host

SHARED = (
    "package/csrc/common/status.cpp",
    "package/csrc/sm100/cutlass_mla/attention_problem.cpp",
    "package/csrc/sm100/cutlass_mla/workspace.cpp",
)
SPARSE = "package/csrc/sm100/sparse_decode/problem.cpp"
NO_LAUNCH = "tests/sm100/no_launch.cpp"


def test_dense(tmp_path: Path) -> None:
    """What the host makes of problems of dense decode."""
    host.check(tmp_path, "tests/sm100/dense.cpp", NO_LAUNCH, *SHARED, "package/csrc/sm100/decode/problem.cpp")


def test_sparse(tmp_path: Path) -> None:
    """What the host makes of problems of sparse decode."""
    host.check(tmp_path, "tests/sm100/sparse.cpp", NO_LAUNCH, *SHARED, SPARSE)


def test_rows(tmp_path: Path) -> None:
    """The kernels around CUTLASS's, whose blocks run one after another on the host."""
    host.check(
        tmp_path,
        "tests/sm100/rows.cpp",
        *SHARED,
        SPARSE,
        f"{tmp_path}/sm100/cutlass_mla/batch_rows.cu.cpp",
        flags=on_host.rewrite(tmp_path, "cuda", "sm100"),
    )
