"""What holds for all tests."""

import os

import pytest

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it in its workers, and then what a command prints is wrapped


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that build wheels: the other processes then have enough to do until these end."""
    items.sort(key=lambda item: "packaging/build" not in item.nodeid)
