"""The stage takes what git would take, leaves equal files alone, and belongs to its user alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci.build import __main__ as build
from ci.build import stage
from ci.rows import rows

STRANGER = 65534


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


def test_the_stage_is_its_users_alone(repository, place):
    before = os.umask(0)
    try:
        with stage.staged(repository) as staged:
            (staged.source / "made").touch()
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert place.stat().st_mode & 0o777 == 0o700
    assert not [path for path in place.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]


@pytest.mark.parametrize(
    ("variable", "folder"), [("XDG_CACHE_HOME", "/caches/mla-kernels"), (None, ".cache/mla-kernels")]
)
def test_every_user_has_a_stage_by_default(tmp_path, monkeypatch, variable, folder):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **({variable: "/caches"} if variable else {})}
    code = "from ci.build.stage import FOLDER; print(FOLDER)"
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert Path(told.stdout.strip()) == tmp_path / folder


def give_away(path, monkeypatch):
    """Let another user own a path; without the right to do so, let the build be another user."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


@pytest.mark.parametrize(
    "name", [".", "lock", "source", "source/kept.txt", "cache/object", "tools/cpu/bin/python", "link"]
)
def test_a_stage_with_what_another_user_put_there_is_refused(repository, place, monkeypatch, name):
    with stage.staged(repository):
        pass
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == "link":
        path.symlink_to("lock")
    elif not path.is_dir():
        path.touch()
    give_away(path, monkeypatch)
    says = r" belongs to user \d+, not to user \d+: .* by MLA_KERNELS_STAGE"
    with pytest.raises(SystemExit, match=says), stage.staged(repository):
        pass


@pytest.mark.parametrize("name", [".", "lock", "source/kept.txt", "source"])
@pytest.mark.parametrize("mode", [0o002, 0o020])
def test_a_stage_that_others_can_write_is_refused(repository, place, name, mode):
    with stage.staged(repository):
        pass
    (place / name).chmod(0o700 | mode)
    says = f"can be written by others, with mode {0o700 | mode:o}"
    with pytest.raises(SystemExit, match=says), stage.staged(repository):
        pass


def test_a_stage_that_is_a_link_is_refused(repository, tmp_path, monkeypatch):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setattr(stage, "FOLDER", tmp_path / "link")
    with pytest.raises(SystemExit, match="is a link"), stage.staged(repository):
        pass


def test_a_planted_python_does_not_run(place, tmp_path, monkeypatch):
    """Another user made the stage before its owner did, with tools that look as if a build had installed them."""
    (row,) = (row for row in rows() if row.core)
    ran, tools = tmp_path / "ran", place / "tools" / row.payload

    def install(command, **_):
        if "venv" in command:
            (tools / "bin").mkdir(parents=True)

    place.mkdir()
    with stage.staged() as staged, monkeypatch.context() as without_pip:
        without_pip.setattr(subprocess, "run", install)
        assert staged.tools(row) == tools
    (tools / "bin" / "python").write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
    (tools / "bin" / "python").chmod(0o755)
    for path in (place, *place.rglob("*")):
        give_away(path, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["build", row.payload, "--no-cache", f"--out={tmp_path / 'dist'}"])
    with pytest.raises(SystemExit):
        build.main()
    assert not ran.exists()


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
