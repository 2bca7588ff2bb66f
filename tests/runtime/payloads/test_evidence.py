"""What ``info`` says of a payload is what a test run showed of that very library, and nothing more."""

from __future__ import annotations

import hashlib
import json

from mla_kernels.payloads import evidence


def write(folder, **fields):
    told = {
        "state": "marshalling verified, not yet run on Blackwell",
        "gpu": "NVIDIA H200",
        "commit": "0123456789abcdef",
    }
    (folder / "evidence.json").write_text(json.dumps(told | fields))


def test_a_payload_without_evidence_is_compiled(tmp_path):
    assert evidence.state(tmp_path, tmp_path / "lib.so") == "compiled"


def test_evidence_of_this_library(tmp_path):
    library = tmp_path / "lib.so"
    library.write_bytes(b"machine code")
    write(tmp_path, library_sha256=hashlib.sha256(b"machine code").hexdigest())
    said = "compiled, marshalling verified, not yet run on Blackwell (NVIDIA H200, commit 0123456789ab)"
    assert evidence.state(tmp_path, library) == said


def test_evidence_of_another_build_does_not_count(tmp_path):
    library = tmp_path / "lib.so"
    library.write_bytes(b"other machine code")
    write(tmp_path, library_sha256=hashlib.sha256(b"machine code").hexdigest())
    assert evidence.state(tmp_path, library).startswith("compiled; of another build: marshalling verified")


def test_broken_evidence_is_none(tmp_path):
    (tmp_path / "evidence.json").write_text("{")
    assert evidence.state(tmp_path, tmp_path / "lib.so") == "compiled"
    (tmp_path / "evidence.json").write_text("[]")
    assert evidence.state(tmp_path, tmp_path / "lib.so") == "compiled"
