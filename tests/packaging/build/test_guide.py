"""The pages on adding things, word for word: from a clean clone to a launch of what it lacked.

A block with a path as its title is a file: a new one, or, in a ``diff``, a change to one. The other blocks are run.
"""

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
PLACE = re.compile(r"^\d\. `([^`]+)`", re.MULTILINE)

Run = Callable[..., subprocess.CompletedProcess[str]]


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=guide", "-c", "user.email=guide@localhost")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a clone of the working tree, uncommitted changes included, and an environment.

    All pages share it, and with it what nox and the builds install.
    """
    folder = tmp_path_factory.mktemp("guide")
    origin, environment = folder / "origin", folder / "environment"
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        source, target = ROOT / name, origin / name
        if name and os.path.lexists(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    git(origin, "init", "--quiet")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message=the working tree")
    git(folder, "clone", "--quiet", str(origin), str(folder / "clone"))
    venv.create(environment, with_pip=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    there = dict.fromkeys([str(Path(mla_kernels.__file__).parents[1]), sysconfig.get_path("purelib")])
    (site / "shared.pth").write_text("\n".join(there))
    return folder


@pytest.fixture
def clone(place):
    """The clone, with what another page changed taken back."""
    folder = place / "clone"
    git(folder, "reset", "--quiet", "--hard")
    git(folder, "clean", "--quiet", "--force", "-d")
    return folder


@pytest.fixture
def run(place, clone) -> Run:
    """Run a command in the clone, in an environment that has what this one has."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    variables["PATH"] = f"{place / 'environment' / 'bin'}:{os.environ['PATH']}"
    variables["MLA_KERNELS_STAGE"] = str(place / "stage")  # a build that goes on elsewhere is left alone

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=clone, env=variables, capture_output=True, text=True, check=False)

    return run


def test_adding_a_variant(clone, run):
    follow(ROOT / "docs" / "adding-a-variant.md", clone, run)


def test_adding_an_architecture(clone, run):
    """The page changes at most six places for the architecture, and these are what CONTRIBUTING.md lists."""
    follow(ROOT / "docs" / "adding-an-architecture.md", clone, run)
    changed = {
        line[3:]
        for line in git(clone, "status", "--porcelain", "--untracked-files=all").splitlines()
        if not line[3:].startswith(("generated/", "README.md"))  # which has a table of what is generated
    }
    of_arch = listed("Adding an architecture", payload="toy")
    of_op = listed("Adding an op", payload="toy", op="row_norms")
    assert len(of_arch) <= 6
    assert {path for path in changed if not path.startswith((*of_arch, *of_op))} == set()
    assert [place for place in of_arch if not any(path.startswith(place) for path in changed)] == ["tests/gpu/toy/"]


def listed(section: str, **names: str) -> list[str]:
    """The places that a section of CONTRIBUTING.md numbers, with names in place of ``<payload>`` and ``<op>``."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    places = PLACE.findall(text)
    for name, value in names.items():
        places = [place.replace(f"<{name}>", value) for place in places]
    assert places, f"CONTRIBUTING.md numbers no place below {section!r}"
    return places


def follow(page: Path, clone: Path, run: Run) -> None:
    """Follow a page; where a python block is refused, the next command must be the one that the refusal printed."""
    refused = ""
    for block in blocks(page):
        if block.title:
            write(block, clone)
            continue
        if block.language == "sh" and refused:
            assert block.text == refused, "the guide runs another command than the refusal printed"
        refused = do(block, run)


def write(block: Block, folder: Path) -> None:
    """Make the file that a block shows, or the change that a ``diff`` shows."""
    path = folder / block.title
    if block.language != "diff":
        assert not path.exists(), f"{block.id}: there is a file {block.title} already"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{block.text}\n", encoding="utf-8")
        return
    lines = [(line[:1] or " ", line[1:]) for line in block.text.splitlines()]
    old, new = ("".join(f"{text}\n" for sign, text in lines if sign in kept) for kept in (" -", " +"))
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{block.id}: {block.title} holds this {text.count(old)} times:\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def do(block: Block, run: Run) -> str:
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
        do(block, run)


@pytest.mark.parametrize(
    ("language", "text", "problem"),
    [
        ("toml", "new = 1", "there is a file kept.toml already"),
        ("diff", "-gone = 1\n+new = 1", "holds this 0 times"),
        ("diff", "-twice = 1\n+new = 1", "holds this 2 times"),
    ],
)
def test_a_page_that_no_longer_fits_is_noticed(language, text, problem, tmp_path):
    (tmp_path / "kept.toml").write_text("twice = 1\ntwice = 1\n")
    with pytest.raises(AssertionError, match=problem):
        write(Block(tmp_path / "page.md", 1, language, "kept.toml", text), tmp_path)


def test_a_diff_changes_its_lines_only(tmp_path):
    (tmp_path / "kept.toml").write_text("a = 1\nb = 2\nc = 3\n")
    write(Block(tmp_path / "page.md", 1, "diff", "kept.toml", " a = 1\n-b = 2\n+b = 3"), tmp_path)
    assert (tmp_path / "kept.toml").read_text() == "a = 1\nb = 3\nc = 3\n"
