"""The engine of the CPU, without a payload around it."""

from __future__ import annotations

from pathlib import Path

from tests.support.native import host


def test_the_engine_reads_any_format_with_scales_in_its_rows(tmp_path: Path) -> None:
    """Offsets, groups and types come from the format's row, by name from nowhere."""
    host.check(tmp_path, "tests/cpu/cache_rows.cpp", "package/csrc/cpu/isa/units/baseline.cpp", cuda=False)


def test_the_pool_under_thread_sanitizer(tmp_path: Path) -> None:
    """Three callers post jobs to four threads, and some of the jobs fail."""
    sources = ("tests/cpu/pool.cpp", "package/csrc/cpu/pool.cpp", "package/csrc/common/status.cpp")
    host.check(tmp_path, *sources, cuda=False, flags=("-g", "-fsanitize=thread"))


def test_helper_threads_hand_on_errors_take_no_signals_and_survive_forks(tmp_path: Path) -> None:
    """A child is forked at the worst time: while another thread of its parent holds the pool's lock."""
    sources = ("tests/cpu/threads.cpp", "package/csrc/cpu/pool.cpp", "package/csrc/common/status.cpp")
    host.check(tmp_path, *sources, cuda=False, flags=("-ldl",))
