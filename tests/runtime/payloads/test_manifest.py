"""A manifest is read whole or not at all, and tells which files are not those that were built."""

from __future__ import annotations

import hashlib
import json

import mla_kernels as mla
import pytest
from mla_kernels.errors import PayloadError
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.manifest import Manifest, sha256

FILES = {"libmla_toy.so": b"machine code", "registry.json": b"{}"}


@pytest.fixture
def folder(tmp_path):
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def document(**changes):
    """A manifest of ``FILES`` with fields replaced, or left out where they are an ellipsis."""
    told = {
        "payload": "toy",
        "version": mla.__version__,
        "abi_hash": "0123456789abcdef",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "dirty": False,
        "matrix_sha256": "0" * 64,
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in FILES.items()
        },
        "variants": {"toy_decode": {"config": {"op": "decode"}, "kernels": []}},
    }
    return {field: value for field, value in (told | changes).items() if value is not ...}


def load(folder, text):
    (folder / "manifest.json").write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
    return Manifest.load(folder)


def test_what_it_says(folder):
    manifest = load(folder, document())
    assert (manifest.payload, manifest.version, manifest.variants) == ("toy", mla.__version__, {"toy_decode"})
    assert manifest.files["libmla_toy.so"].bytes == len(FILES["libmla_toy.so"])
    manifest.require_files(folder)
    assert manifest.altered(folder) == {}


@pytest.mark.parametrize(
    ("changes", "revision"),
    [({}, "0123456789ab"), ({"dirty": True}, "0123456789ab+dirty"), ({"commit": None, "dirty": True}, None)],
)
def test_revision(folder, changes, revision):
    assert load(folder, document(**changes)).revision == revision


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "JSONDecodeError"),
        (b"\xff", "UnicodeDecodeError"),
        (b"[" * 100_000, "RecursionError"),
        (b"[]", "TypeError"),
        (b"null", "TypeError"),
        *((document(**{field: ...}), f"KeyError('{field}')") for field in document() if field != "matrix_sha256"),
        (document(payload=3), "TypeError('3 is no str')"),
        (document(commit=3), "TypeError('3 is no str')"),
        (document(dirty="no"), "TypeError(\"'no' is no bool\")"),
        (document(files=[]), "TypeError"),
        (document(files={"libmla_toy.so": {"bytes": "12", "sha256": ""}}), "TypeError(\"'12' is no int\")"),
        (document(files={"libmla_toy.so": 12}), "TypeError"),
        (document(variants=[]), "TypeError('[] is no dict')"),
    ],
)
def test_what_cannot_be_read(folder, text, part):
    with pytest.raises(PayloadError, match=r"manifest.json cannot be read: ") as caught:
        load(folder, text)
    assert part in str(caught.value)


def test_missing(folder):
    with pytest.raises(PayloadError, match=r"manifest.json is missing"):
        Manifest.load(folder)


@pytest.mark.parametrize("name", FILES)
def test_what_a_payload_must_have_before_it_is_loaded(folder, name):
    manifest = load(folder, document())
    path, data = folder / name, FILES[name]
    path.write_bytes(data[:-1])
    with pytest.raises(PayloadError, match=rf"{name} has {len(data) - 1} bytes, manifest.json states {len(data)}: "):
        manifest.require_files(folder)
    path.write_bytes(data[:-1] + b"x")
    with pytest.raises(PayloadError, match=rf"{name} has sha256 \w+, manifest.json states \w+: it is damaged"):
        manifest.require_files(folder)
    path.unlink()
    with pytest.raises(PayloadError, match=rf"{name} cannot be read: .*; manifest.json states {len(data)} bytes"):
        manifest.require_files(folder)


def test_content(folder):
    manifest = load(folder, document())
    (folder / "libmla_toy.so").write_bytes(b"Machine code")
    (folder / "registry.json").unlink()
    altered = manifest.altered(folder)
    assert set(altered) == {folder / "libmla_toy.so", folder / "registry.json"}
    found, stated = (hashlib.sha256(data).hexdigest()[:12] for data in (b"Machine code", FILES["libmla_toy.so"]))
    assert f"has sha256 {found}, manifest.json states {stated}" in altered[folder / "libmla_toy.so"]
    assert "cannot be read: FileNotFoundError" in altered[folder / "registry.json"]


def test_hash_of_a_file_longer_than_a_block(tmp_path):
    data = bytes(range(256)) * 8193
    (tmp_path / "file").write_bytes(data)
    assert sha256(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_every_payload_in_use_has_its_manifest():
    for payload in payloads().found.values():
        assert payload.manifest.variants == {variant.name for variant in payload.registry.variants}
        assert payload.manifest.altered(payload.folder) == {}
