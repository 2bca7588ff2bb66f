"""The fixture of every test of SGLang's plug-in."""

from __future__ import annotations

from tests.runtime.compat.sglang.stand_ins import sglang

__all__ = ["sglang"]
