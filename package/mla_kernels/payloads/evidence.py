"""How far a payload has been shown to work: what test runs said of this very library."""

from __future__ import annotations

import json
from pathlib import Path

from mla_kernels.payloads.manifest import sha256

UNPROVEN = "compiled"


def state(folder: Path, library: Path) -> str:
    """Say what is known of a payload.

    Parameters
    ----------
    folder : Path
        Of the payload; ``evidence.json`` in it was written by a test run, see ``ci/release/evidence.py``.
    library : Path
        Its library.

    Returns
    -------
    str
        ``compiled``; or that, what a test run showed and on which GPU; or, where the library differs from the one that
        was tested, ``compiled`` and what was shown of another build.
    """
    try:
        evidence = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
        tested = evidence["library_sha256"]
        shown = f"{evidence['state']} ({evidence['gpu']}, commit {evidence['commit'][:12]})"
    except (OSError, ValueError, KeyError, TypeError):
        return UNPROVEN
    if sha256(library) != tested:
        return f"{UNPROVEN}; of another build: {shown}"
    return f"{UNPROVEN}, {shown}"
