"""Measures what wheels cost to build, to install and to import; ``nox -s full`` ends with it, and it writes the page.

Builds from nothing were measured before, by ``ci.build --fresh --recache``; the reports of these are read. Everything
else is measured here: builds answered by the compile cache, a row added, an installation up to its first result.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages.facts import git_commit, processor
from benchmarks.pages.markdown import markdown
from ci.build import shards
from ci.build.report import WORKERS, Report, plot, projected
from ci.release import index
from ci.release.index_server import Environment, serving
from ci.rows import ROOT, rows

ADDED = {row.payload: row.added for row in rows()}
PAGE = ROOT / "docs" / "benchmarks" / "wheels.md"
FIRST_RESULT = """
import mla_kernels as mla, torch
from mla_kernels.formats import HEAD_DIM
q, cache = torch.randn(2, 1, 16, HEAD_DIM).bfloat16(), torch.randn(8, 64, HEAD_DIM).bfloat16()
table, lengths = torch.randperm(8).int().view(2, 4), torch.tensor([256, 100], dtype=torch.int32)
out, lse = mla.decode(q, cache, table, lengths, softmax_scale=0.1)
assert out.isfinite().all()
"""
IMPORT = """
import time
start = time.perf_counter()
import mla_kernels
print(time.perf_counter() - start)
maps = open("/proc/self/maps").read()
assert "libcuda" not in maps and "libtorch" not in maps and "libmla" not in maps
"""

Rows = list[dict[str, Any]]


def main() -> None:
    """Measure, and write the page, its plot and the costs by which shards are cut."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, help="of builds from nothing")
    options = parser.parse_args()
    reports = [Report.load(path) for path in options.reports]
    if answered := [report.payload for report in reports if report.cache.get("hits")]:
        raise SystemExit(f"the compile cache answered for {', '.join(answered)}; build with --fresh --recache")
    again = [repeated(report) for report in reports]
    page = [
        "# Wheels: building, installing, importing",
        markdown(facts(reports)),
        "## Builds",
        "From nothing: every unit is compiled. Cached: the build folder is empty and the compile cache answers. "
        "Unchanged: nothing is compiled. A row added: it was taken out of the matrix, and the cache is not asked when "
        "it comes back; the figure is the build's alone.",
        markdown(again),
        "## What units cost",
        "A unit is an object; its seconds are of one of two compilers at work.",
        *(f"### {report.payload}\n\n{markdown(units(report))}" for report in reports),
        "## Many variants",
        "The measured units, repeated until there are 1,000 variants, the dearest first, on so many cores; linking, "
        "configuring and moving objects are not in it.",
        markdown(projections(reports)),
        "![seconds against the number of variants, as compiled and as projected](wheels.png)",
        "## Installing and importing",
        "`pip install mla-kernels[all]` from an index on loopback into a new environment with torch, and a first "
        "decode on the CPU in a new process; then `import mla_kernels` there, 20 processes.",
        markdown(installing()),
    ]
    PAGE.write_text("\n\n".join(page) + "\n")
    plot(reports, PAGE.with_suffix(".png"))
    known = json.loads(shards.COSTS.read_text()) if shards.COSTS.exists() else {}
    shards.COSTS.write_text(json.dumps(known | {report.payload: report.costs for report in reports}, indent=1) + "\n")


def facts(reports: Sequence[Report]) -> Rows:
    """Return the machine, the commit and the command."""
    made = reports[-1]
    rows = {
        "commit": made.commit,
        "measured at": git_commit(),
        "processor": f"{processor()}, {made.cores} cores",
        "command": "`nox -s full`",
    }
    return [{"fact": name, "value": value} for name, value in rows.items()]


def repeated(cold: Report) -> dict[str, Any]:
    """Measure a wheel's build from nothing, then with the cache, then unchanged, then with a row added."""
    cached = build(ROOT, cold.payload, "--fresh")
    unchanged = build(ROOT, cold.payload)
    added = row_added(cold.payload) if ADDED[cold.payload] else None
    return {
        "wheel": cold.payload,
        "MB": cold.wheel_bytes / 1e6,
        "variants in units": sum(unit.variants for unit in cold.units.values()),
        "from nothing, s": cold.seconds,
        "cached, s": cached.seconds,
        "hits, misses": f"{cached.cache.get('hits', 0)}, {cached.cache.get('misses', 0)}",
        "unchanged, s": unchanged.seconds,
        "a row added, s": added.seconds if added else None,
        "units compiled for it": ", ".join(added.units) if added else None,
    }


def row_added(payload: str) -> Report:
    """Take a point out of the matrix of a clone, build, add it again as a user would, and build."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        change(clone, "remove", ADDED[payload])
        build(clone, payload)
        change(clone, "add", ADDED[payload])
        return build(clone, payload, "--recache")


def change(clone: Path, command: str, point: str) -> None:
    """Add a point to the matrix of a clone, or remove it."""
    subprocess.run(
        [sys.executable, "-m", "codegen", command, *point.split()], cwd=clone, check=True, capture_output=True
    )


def build(root: Path, payload: str, *arguments: str) -> Report:
    """Build a wheel and read its report."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "ci.build", payload, f"--out={out}", *arguments]
        subprocess.run(command, cwd=root, check=True, capture_output=True)
        return Report.load(Path(out) / f"{payload}.build.json")


def units(report: Report) -> Rows:
    """Return the units of a build, the dearest first."""
    return [
        {
            "unit": name,
            "variants": unit.variants,
            "seconds": unit.seconds,
            "seconds a variant": unit.seconds / unit.variants,
            "peak MB": unit.peak_mb,
            "kB a variant": unit.object_bytes / 1e3 / unit.variants,
        }
        for name, unit in sorted(report.units.items(), key=lambda pair: -pair[1].seconds)
        if unit.variants
    ]


def projections(reports: Sequence[Report]) -> Rows:
    """Project the minutes for 1,000 variants like those of each payload."""
    return [
        {"1,000 variants like those of": report.payload}
        | {
            f"minutes, {workers} worker{'s' * (workers > 1)}": projected(report.instances, 1000, workers) / 60
            for workers in WORKERS
        }
        for report in reports
    ]


def installing() -> Rows:
    """Measure the way from an index of ``dist/`` to a first result, and the import."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "simple"
        if index.main([str(ROOT / "dist"), str(out)]):
            raise SystemExit("dist/ cannot be indexed")
        environment = Environment(Path(folder) / "environment")
        subprocess.run([environment.python, "-m", "ensurepip"], capture_output=True, check=True)
        (site,) = Path(folder).glob("environment/lib/python3*/site-packages")
        (site / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
        shutil.rmtree(Path(folder) / "environment" / "cache", ignore_errors=True)
        start = time.monotonic()
        with serving(out) as server:
            done = environment.pip(server.url, "install", "mla-kernels[all]")
        installed = time.monotonic()
        if done.returncode:
            raise SystemExit(done.stderr)
        subprocess.run([environment.python, "-c", FIRST_RESULT], check=True)
        first = time.monotonic()
        imports = [
            float(subprocess.run([environment.python, "-c", IMPORT], check=True, capture_output=True, text=True).stdout)
            for _ in range(20)
        ]
    rows = {
        "pip install, s": installed - start,
        "first result, torch's import included, s": first - installed,
        "together (wanted: under 20), s": first - start,
        "import mla_kernels with both GPU payloads, median (wanted: under 80), ms": statistics.median(imports) * 1e3,
        "the slowest of 20, ms": max(imports) * 1e3,
    }
    return [{"what": name, "measured": value} for name, value in rows.items()]


if __name__ == "__main__":
    main()
