"""Measures a CPU, the overheads and the generator, and writes their page: ``python -m benchmarks.pages.machine``."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.pages.facts import ROOT, git_commit, processor
from benchmarks.pages.markdown import markdown

DOCS = ROOT / "docs"

ABOUT = (
    "b = 8, s_k = 4096, one new token, pages of 64 in random order, fresh random data; ours and torch in turns in one "
    "process, medians. The ceiling is the larger of bytes over the read rate and FLOP over the GEMM rate (the faster "
    "of the element type and fp32 in torch), measured in the same run. `x torch` is the time of torch's fastest "
    "formulation (`torch by`) over ours."
)

Rows = list[dict[str, Any]]


def main() -> None:
    """Run the benchmarks on the installed package; `--page NAME` writes docs/benchmarks/NAME.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", required=True, help="the machine, as a file name")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--commit", default=None, help="by default what git says")
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args()
    folder = DOCS / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    decode = f"--op=decode --arch=cpu --threads={options.threads} --heads=16,128".split()
    plot = folder / f"{options.page}_decode.svg"
    sections = [
        f"# CPU and overheads: {options.page.replace('-', ' ').title()}",
        facts(options.threads, options.commit or git_commit()),
        "## Decode on the CPU",
        ABOUT,
        markdown(package(*decode, *([] if options.no_plot else [f"--plot={plot}"]))),
        *([] if options.no_plot else [f"![time, fraction of the ceiling and ratio to torch]({plot.name})"]),
        "KV in the fp8 layouts; torch reads a cache that was dequantised beforehand.",
        markdown(package(*decode, "--dtypes=bf16:e4m3,bf16:fp8_ds_mla")),
        "## Overheads",
        markdown(package("--op=overhead", f"--noop={noop()}")),
        "## The generator",
        "Expand, validate and render a synthetic matrix (`python -m codegen bench`).",
        markdown(generator()),
    ]
    (folder / f"{options.page}.md").write_text("\n\n".join(sections) + "\n")


def package(*arguments: str) -> Rows:
    """The rows of one ``python -m benchmarks``."""
    rows: Rows = json.loads(run("-m", "benchmarks", "--json", *arguments))
    return rows


def generator() -> Rows:
    """The rows of ``python -m codegen bench``."""
    return list(csv.DictReader(run("-m", "codegen", "bench").splitlines()))


def run(*arguments: str) -> str:
    """What a Python command prints, from the repository's root."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, text=True, capture_output=True).stdout


def noop() -> Path:
    """A payload whose decode computes nothing."""
    from tests.support.native.build import build

    return build(Path(tempfile.mkdtemp()))


def facts(threads: str, commit: str) -> str:
    """The machine and the commit, as a table."""
    import torch

    rows = {
        "commit": commit,
        "processor": f"{processor()}, {threads} of {len(os.sched_getaffinity(0))} cores",
        "Python, torch": f"{platform.python_version()}, {torch.__version__}",
        "command": "`nox -s bench`",
    }
    return markdown([{"fact": name, "value": value} for name, value in rows.items()])


if __name__ == "__main__":
    main()
