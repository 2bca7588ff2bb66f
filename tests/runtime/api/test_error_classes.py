"""Classes of errors: each prints, pickles and copies."""

from __future__ import annotations

import copy
import pickle

import mla_kernels as mla
import pytest
from mla_kernels import errors


@pytest.mark.parametrize("name", sorted(errors.STATUS))
def test_every_status_has_a_class_that_prints_and_pickles(name):
    error = errors.STATUS[name]("q", "a list", "a tensor")
    assert isinstance(error, mla.MlaError)
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.copy(error)) == str(error)
    assert "a list" in str(error)


def test_a_missing_package_is_an_error_of_this_package():
    error = errors.MissingPackageError("torch", "mla-kernels[torch]")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "this needs torch: pip install 'mla-kernels[torch]'"
