"""``python -m tests.fuzz``; ``nox -s fuzz`` builds and installs the wheel first."""

import os

if __name__ == "__main__":
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # before NumPy is imported: its threads would take the workers' cores

    from tests.fuzz.command import main

    raise SystemExit(main())
