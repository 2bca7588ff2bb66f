"""The stage takes what git would take, leaves equal files alone, and refuses to stand behind a link."""

from __future__ import annotations

import os
import subprocess

import pytest

from ci.build import stage


def git(folder, *arguments):
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    (folder / "kept.txt").write_text("kept")
    (folder / "sub" / "script").write_text("#!/bin/sh\n")
    (folder / "sub" / "script").chmod(0o755)
    (folder / "link").symlink_to("kept.txt")
    (folder / ".gitignore").write_text("ignored\n")
    (folder / "ignored").write_text("not taken")
    git(folder, "init", "-q")
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    folder = tmp_path / "stage"
    monkeypatch.setattr(stage, "FOLDER", folder)
    return folder


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def test_takes_what_git_would_take(repository, place):
    (repository / "new.txt").write_text("untracked")
    with stage.staged(repository) as staged:
        assert names(staged.source) == [".gitignore", "kept.txt", "link", "new.txt", "sub/script"]
        assert staged.dirty
        assert os.access(staged.source / "sub" / "script", os.X_OK)
        assert (staged.source / "link").readlink().as_posix() == "kept.txt"
    git(repository, "add", "--all")
    git(repository, "commit", "-qm", "second")
    with stage.staged(repository) as staged:
        assert not staged.dirty
        assert len(staged.commit) == 40
        assert staged.epoch > 1e9


def test_equal_files_keep_their_time_and_others_follow(repository, place):
    with stage.staged(repository):
        pass
    kept = place / "source" / "kept.txt"
    os.utime(kept, (1, 1))
    (repository / "sub" / "script").write_text("#!/bin/bash\n")
    (repository / ".gitignore").unlink()
    (repository / "ignored").unlink()
    with stage.staged(repository) as staged:
        assert kept.stat().st_mtime == 1
        assert (staged.source / "sub" / "script").read_text() == "#!/bin/bash\n"
        assert not (staged.source / ".gitignore").exists()


def test_a_stage_behind_a_link_is_refused(repository, tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setattr(stage, "FOLDER", tmp_path / "link")
    with pytest.raises(SystemExit, match="device code holds the real path"), stage.staged(repository):
        pass


def test_a_build_sees_no_compiler_of_the_environment(repository, place, tmp_path, monkeypatch):
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "nvcc").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'cuda'}:/usr/bin:/bin")
    for name in ("CUDACXX", "CXXFLAGS", "CPATH", "PYTHONPATH"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SCCACHE_BUCKET", "shared")
    with stage.staged(repository) as staged:
        seen = staged.environment(tmp_path / "tools")
    assert seen["PATH"] == f"{tmp_path / 'tools' / 'bin'}:/usr/bin:/bin"
    assert not {"CUDACXX", "CXXFLAGS", "CPATH", "PYTHONPATH"} & set(seen)
    assert seen["SCCACHE_BUCKET"] == "shared"
    assert seen["SOURCE_DATE_EPOCH"].isdigit()
    assert seen["MLA_KERNELS_COMMIT"] == staged.commit
