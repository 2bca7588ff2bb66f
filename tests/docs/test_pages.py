"""Every code block of the documentation runs here, or says why not; see ``blocks`` for what a page may hold."""

from __future__ import annotations

import ast
import doctest
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import mla_kernels as mla
import pytest
import torch
from mla_kernels.compat import vllm_plugin
from mla_kernels.devices import current_arch

from tests.docs.blocks import Block, Page, blocks, check

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))]
BLOCKS = {page: blocks(page) for page in PAGES}
REFUSAL = next(block for block in BLOCKS[ROOT / "README.md"] if block.text.startswith("VariantNotFoundError: "))

GUIDES = (DOCS / "adding-a-variant.md", DOCS / "adding-an-architecture.md", DOCS / "releasing.md")
"""Their blocks write files, build wheels and upload them: ``tests/packaging/build/test_guide.py`` follows the first two
in a clean clone, and ``nox -s rehearse`` the last."""

BEFORE = re.compile(r"Before \((FlashMLA|FlashInfer|SGLang|sgl_kernel|vLLM)\)")
"""Titles of blocks that call another library; what they import is checked where that library is installed."""

HERE = [block for page, found in BLOCKS.items() for block in found if page not in GUIDES]
PEERS = [block for block in HERE if BEFORE.fullmatch(block.title)]
PYTHON = [block for block in HERE if block.language == "python" and block not in PEERS]
SHELL = [block for block in HERE if block.language == "sh"]

NOT_RUN = {
    "pip install dist/*.whl torch": "installs what the line above it builds",
    "pip install dist/*.whl": "installs what the line above it builds",
    "python3 -m venv .venv": "makes an environment",
    ". .venv/bin/activate": "changes the shell",
    "python3 -m pip install nox": "installs from PyPI",
    "python -m benchmarks.shared_prefix OUT.json": "needs a Hopper GPU",
    "python -m benchmarks.side_by_side OUT.json": "needs a Hopper GPU and the other libraries",
    "MLA_KERNELS_RECORD=recorded python your_program.py": "runs a program of the reader's",
    "mla-kernels replay recorded/*.safetensors --arch=cpu": "needs files of the reader's",
    "vllm serve MODEL --attention-backend MLA_KERNELS": "needs vLLM, as the page says",
    "MLA_KERNELS_VLLM_OVERRIDE=CPU_MLA vllm serve MODEL --attention-backend CPU_MLA": "needs vLLM, as the page says",
    "sglang serve --model-path MODEL --attention-backend mla_kernels": "needs SGLang, as the page says",
    "export MLA_KERNELS_SGLANG_OVERRIDE=flashmla_sparse,flashmla_kv": "is for the command after it",
    "sglang serve --model-path MODEL --kv-cache-dtype fp8_e4m3": "needs SGLang, as the page says",
}

NOX = re.compile(r"(?:python3? -m )?nox -s (?P<sessions>[a-z_][a-z_ ]*?)(?: -- .*)?")
INLINE_NOX = re.compile(r"`(nox -s [^`]+)`")


def lacks_gpu() -> str:
    return "" if torch.cuda.is_available() else "needs a GPU"


def lacks_decode() -> str:
    return lacks_gpu() or ("" if mla.variants(op="decode", arch=current_arch()) else f"no decode for {current_arch()}")


NEEDS = {"Needs a GPU": lacks_gpu, "Needs a GPU with a decode variant": lacks_decode}


@pytest.fixture(scope="module")
def pages() -> dict[Path, Page]:
    ours = {page: [block for block in found if block not in PEERS] for page, found in BLOCKS.items()}
    return {page: Page(found) for page, found in ours.items()}


@pytest.fixture(scope="module")
def sessions() -> set[str]:
    command = [sys.executable, "-m", "nox", "--list", "--nocolor"]  # with --json it lists the default ones only
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^[*-] (\S+)", listed, re.MULTILINE))


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.id)
def test_python(block, pages):
    if block.title in NEEDS and (reason := NEEDS[block.title]()):
        pages[block.page].skip(block)
        pytest.skip(reason)
    pages[block.page].run(block)


@pytest.mark.parametrize("block", PEERS, ids=lambda block: block.id)
def test_imports_of_another_library(block):
    """Such a block is compiled, and its imports are resolved where the library is installed."""
    imports = [node for node in ast.parse(block.text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    named = [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports]
    assert named
    if lacking := [name for name in map(str, named) if find_spec(name.partition(".")[0]) is None]:
        pytest.skip(f"needs {', '.join(lacking)}")
    exec(compile(ast.Module(list(imports), []), block.page, "exec"), {})


def commands(block: Block) -> list[str]:
    return [part.strip() for line in block.text.splitlines() for part in line.split("&&") if part.strip()]


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.id)
def test_shell(block, sessions):
    printed = [run(command, sessions) for command in commands(block)]
    if block.output is not None:
        assert None not in printed, f"{block.id} shows the output of what this test does not run"
        check(block, "".join(map(str, printed)))


def run(command: str, sessions: set[str]) -> str | None:
    """Run a command, or see that there is what it names."""
    if command in NOT_RUN:
        return None
    if nox := NOX.fullmatch(command):
        assert set(nox["sessions"].split()) <= sessions, command
        return None
    words = shlex.split(command.partition(" > ")[0])  # a file of the reader's is not written
    python, *arguments = ["python", "-m", "mla_kernels", *words[1:]] if words[0] == "mla-kernels" else words
    assert [python, *arguments[:2]] == ["python", "-m", "mla_kernels"], f"no test runs: {command}"
    piped = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    line = [sys.executable, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300, env=piped)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_languages_and_sessions(page, sessions):
    shown = [block for block in BLOCKS[page] if block not in (REFUSAL, *PEERS) and not (page in GUIDES and block.title)]
    assert {block.language for block in shown} <= {"python", "sh"}
    assert {block.title for block in shown} <= {"", *NEEDS}
    for command in INLINE_NOX.findall(page.read_text(encoding="utf-8")):
        nox = NOX.fullmatch(command)
        assert nox, command
        assert set(nox["sessions"].split()) <= sessions, command


@pytest.mark.parametrize("block", [block for block in PYTHON if DOCS in block.page.parents], ids=lambda block: block.id)
def test_width(block):
    """A block is shown without scrolling on a screen of 1280 pixels."""
    assert [line for line in block.text.splitlines() if len(line) > 88] == []


TITLED = [page for page in PAGES if DOCS in page.parents and page.parent.name != "benchmarks"]


def test_titles_have_one_form():
    """A title is a phrase in sentence case without a colon or a full stop, fits a narrow screen, and is there once."""
    included = {DOCS / f"{name}.md" for name in ("changelog", "contributing", "security")}
    texts = {page: page.read_text(encoding="utf-8") for page in TITLED if page not in included}
    titles = {
        page: re.sub(r"\A---\n.*?---\n\n?", "", text, flags=re.DOTALL).splitlines()[0] for page, text in texts.items()
    }
    form = re.compile(r"# (?:mla-kernels|torch\.compile|[A-Z][^:.!?]{2,44})")
    assert [page.name for page, title in titles.items() if not form.fullmatch(title)] == []
    assert len(set(titles.values())) == len(titles)


def test_the_list_of_what_is_not_run_is_not_stale():
    assert set(NOT_RUN) <= {command for block in SHELL for command in commands(block)}


def test_the_refusal_of_the_readme():
    with pytest.raises(mla.VariantNotFoundError) as error:
        mla.lookup(op="decode", arch="cpu", q_dtype="fp32", kv_dtype="bf16", page_size=64)
    check(replace(REFUSAL, output=REFUSAL.text), f"VariantNotFoundError: {error.value}")


def test_docstrings():
    package = Path(mla.__file__).parent
    paths = [path for path in sorted(package.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    assert len(paths) > 1
    for path in paths:
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        failed, _ = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
        assert failed == 0, name


TROUBLES = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")


def test_messages_that_depend_on_the_machine_are_those_of_the_package():
    """The table quotes, in its first column, messages that no block can raise everywhere."""
    kinds = ("mla_kernels/**/*.py", "csrc/launcher/**/*.cpp")
    sources = [path for kind in kinds for path in sorted((ROOT / "package").glob(kind))]
    said = "".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8")) for path in sources)
    quoted = re.findall(r"^\| `([^`]+)` \|", TROUBLES.partition("## GPU, driver and payloads")[2], re.MULTILINE)
    assert len(quoted) > 8
    assert [text for text in quoted if text not in said] == []


def test_every_class_of_errors_has_a_heading():
    bases = {mla.errors.MlaError, mla.errors.InvalidArgumentError}
    classes = {name for name, kind in vars(mla.errors).items() if isinstance(kind, type) and kind not in bases}
    assert classes <= set(re.findall(r"^### (\w+)$", TROUBLES, re.MULTILINE))


def test_environment_variables_are_those_that_the_page_lists():
    listed = set(re.findall(r"`(MLA_KERNELS_\w+)`", (DOCS / "install.md").read_text(encoding="utf-8")))
    paths = [ROOT / "noxfile.py", *(path for name in ("ci", "package", "tests") for path in (ROOT / name).rglob("*"))]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.suffix in {".cpp", ".h", ".py"}]
    named = {name for text in texts for name in re.findall(r"\bMLA_KERNELS_[A-Z]+(?:_[A-Z]+)*", text)}
    assert listed == named - set(vllm_plugin.NAMES)  # names of backends are no variables


SHOWN_TWICE = [page for page in ROOT.glob("*.md") if (DOCS / page.name.lower()).exists()]


@pytest.mark.parametrize("page", SHOWN_TWICE, ids=lambda page: page.name)
def test_a_page_that_lies_in_two_folders_has_no_relative_links(page):
    """``docs/changelog.md`` shows ``CHANGELOG.md``: a relative link leads astray in one of them."""
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", page.read_text(encoding="utf-8")) == []


SOURCE = re.compile(r"`([\w/]+\.(?:cuh|cu|h|cpp))`")
SCHEDULES = [page for page in sorted(DOCS.glob("kernels/*/*.md")) if not page.stem.endswith("log")]


@pytest.mark.parametrize("page", SCHEDULES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_sources_that_a_kernel_page_names(page):
    """Logs may name what is gone, pages of schedules may not."""
    sources = [path.as_posix() for folder in ("package", "tests") for path in (ROOT / folder).rglob("*")]
    named = SOURCE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in sources)] == []
