"""``sync`` finds and mends missing, stale and orphan files, and leaves equal ones alone."""

from __future__ import annotations

from codegen import sync

FILES = {"a.txt": "a\n", "folder/b.txt": "b\n"}


def test_write_then_compare(tmp_path):
    assert sync.compare(FILES, tmp_path).missing == ("a.txt", "folder/b.txt")
    sync.write(FILES, tmp_path)
    assert not sync.compare(FILES, tmp_path)


def test_each_difference_is_found_and_mended(tmp_path):
    sync.write(FILES, tmp_path)
    (tmp_path / "a.txt").write_text("changed\n")
    (tmp_path / "folder" / "b.txt").unlink()
    (tmp_path / "c.txt").write_text("nobody's\n")
    difference = sync.compare(FILES, tmp_path)
    assert (difference.stale, difference.missing, difference.orphan) == (("a.txt",), ("folder/b.txt",), ("c.txt",))
    assert str(difference).splitlines() == [
        "missing: folder/b.txt",
        "stale: a.txt",
        "orphan: c.txt: no row makes it; nox -s generate deletes it",
    ]
    sync.write(FILES, tmp_path)
    assert not sync.compare(FILES, tmp_path)


def test_equal_files_keep_their_time_stamp(tmp_path):
    sync.write(FILES, tmp_path)
    before = (tmp_path / "a.txt").stat().st_mtime_ns
    sync.write({**FILES, "folder/b.txt": "new\n"}, tmp_path)
    assert (tmp_path / "a.txt").stat().st_mtime_ns == before


def test_files_are_compared_byte_by_byte(tmp_path):
    sync.write(FILES, tmp_path)
    (tmp_path / "a.txt").write_bytes(b"a\r\n")
    (tmp_path / "folder" / "b.txt").write_bytes(b"\xff\n")
    assert sync.write(FILES, tmp_path).stale == ("a.txt", "folder/b.txt")
    assert (tmp_path / "a.txt").read_bytes() == b"a\n"
