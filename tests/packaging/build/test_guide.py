"""docs/adding-a-variant.md, word for word: from a refusal, in a clean clone, to a launch of what it lacked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import mla_kernels
import pytest

from tests.docs.blocks import Block, blocks, check

ROOT = Path(__file__).parents[3]
ERROR = re.compile(r".*^(?P<last>[\w.]+Error: .*)", re.MULTILINE | re.DOTALL)

Run = Callable[..., subprocess.CompletedProcess[str]]


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=guide", "-c", "user.email=guide@localhost")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def clone(tmp_path):
    """A clean clone of the working tree, uncommitted changes included."""
    origin, folder = tmp_path / "origin", tmp_path / "clone"
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        source, target = ROOT / name, origin / name
        if name and os.path.lexists(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    git(origin, "init", "--quiet")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message=the working tree")
    git(tmp_path, "clone", "--quiet", str(origin), str(folder))
    return folder


@pytest.fixture
def run(clone, tmp_path) -> Run:
    """Run a command in the clone, in an environment that has what this one has."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    there = dict.fromkeys([str(Path(mla_kernels.__file__).parents[1]), sysconfig.get_path("purelib")])
    (site / "shared.pth").write_text("\n".join(there))
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    variables["PATH"] = f"{environment / 'bin'}:{os.environ['PATH']}"
    variables["MLA_KERNELS_STAGE"] = str(tmp_path / "stage")  # a build that goes on elsewhere is left alone

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=clone, env=variables, capture_output=True, text=True, check=False)

    return run


def test_the_guide(run):
    refused = ""
    for block in blocks(ROOT / "docs" / "adding-a-variant.md"):
        if block.language == "sh" and refused:
            assert block.text == refused, "the guide runs another command than the refusal printed"
        refused = follow(block, run)


def follow(block: Block, run: Run) -> str:
    """Do what a block says; return the command that it printed, where it was refused."""
    command = ("python", "-c") if block.language == "python" else ("bash", "-ec")
    done = run(*command, block.text)
    error = ERROR.match(done.stderr) if block.language == "python" and done.returncode else None
    if error is None:
        assert done.returncode == 0, f"{block.id}\n{done.stdout}\n{done.stderr}"
    printed = done.stdout + (error["last"] if error else "")
    if block.output is not None or error is not None:
        check(block, printed)
    added = re.search(r"^to add it: (.*)$", printed, re.MULTILINE)
    return added[1] if added else ""


def test_an_unfollowed_guide_is_noticed(run, tmp_path):
    block = Block(tmp_path / "page.md", 1, "python", "", "import mla_kernels\nmla_kernels.nothing")
    with pytest.raises(AssertionError, match="AttributeError"):
        follow(block, run)
