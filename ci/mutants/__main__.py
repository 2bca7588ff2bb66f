"""Applies mutants, builds them and runs the tests that should notice: ``python -m ci.mutants [NAME...]``.

A run goes on where the last one stopped. ``--build-only PAYLOAD --out DIR`` builds the mutants of a GPU payload, and
``--run-gpu DIR --json OUT`` runs their tests on a machine that has the GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.mutants import gpu
from ci.mutants.mutant import Mutant, MutantError, mutants, problems
from ci.mutants.results import PAGE, Results, page


def main() -> int:
    """Return 0 where every mutant was killed, but for those that may survive."""
    options = _parser().parse_args()
    if options.run_gpu:
        return 0 if gpu.run(options.run_gpu.resolve(), options.json) else 1
    try:
        listed = _chosen(mutants(), options.names)
    except MutantError as error:
        sys.exit(str(error))
    if wrong := problems(listed):
        sys.exit("\n".join(wrong))
    # A machine that only runs mutants has none of what these modules import.
    from ci.mutants import campaign

    if options.page:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), listed, Results().by_name), encoding="utf-8")
        return 0
    if options.build_only:
        chosen = [mutant for mutant in listed if mutant.gpu and mutant.table == options.build_only]
        return campaign.build_only(chosen, options.build_only, options.out)
    return campaign.run([mutant for mutant in listed if not mutant.gpu], options.jobs)


def _chosen(listed: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    unknown = set(names) - {name for mutant in listed for name in (mutant.name, mutant.table)}
    if unknown:
        raise MutantError(f"there is no mutant and no table {', '.join(sorted(unknown))}")
    return [mutant for mutant in listed if not names or {mutant.name, mutant.table} & set(names)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nox -s mutants --", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants or tables; by default all that need no GPU")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many are built and tested at a time")
    parser.add_argument("--page", action="store_true", help="write docs/mutants.md from the results, and run nothing")
    parser.add_argument("--build-only", metavar="PAYLOAD", help="build the mutants of a GPU payload")
    parser.add_argument("--out", type=Path, default=Path("dist/mutants"), help="where --build-only puts libraries")
    parser.add_argument("--run-gpu", type=Path, metavar="DIR", help="run the tests of what --build-only built")
    parser.add_argument("--json", type=Path, default=Path("mutants.json"), help="where --run-gpu writes results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
