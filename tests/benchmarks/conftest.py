"""Fixtures of ``tests/runtime`` that the bench needs too."""

from tests.runtime.conftest import play, rediscover, use

__all__ = ["play", "rediscover", "use"]
