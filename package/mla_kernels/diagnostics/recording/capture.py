"""Records calls while it is switched on; while it is off, launches are those of the kernels and pass through nothing.

Switching on replaces ``launch`` of the kernel classes, which everything ends in: the ops, kernels from ``lookup``, the
adapters, and compiled graphs. Switching off, or the last call that was asked for, puts it back.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mla_kernels.diagnostics import tables
from mla_kernels.diagnostics.memory import lacks_memory
from mla_kernels.errors import InternalError, MissingPackageError, MlaError, UnsupportedError, ValueRangeError
from mla_kernels.kernels.base import Kernel
from mla_kernels.kernels.ops import KERNELS
from mla_kernels.scalars import count

FOLDER, CALLS = "MLA_KERNELS_RECORD", "MLA_KERNELS_RECORD_CALLS"
"""The environment variables: where to write files, and how many."""
MOST = 16
"""Calls that are recorded unless told otherwise: a server makes thousands a second."""

_lock = threading.Lock()
_active: list[Recorder] = []
_own: dict[str, Callable[..., Any]] = {}
"""The launches that were replaced, by op."""


class Recorder:
    """Where calls are written, which ops are, and how many are still wanted."""

    def __init__(self, folder: Path, ops: frozenset[str], calls: int) -> None:
        self.folder, self.ops, self.left = folder, ops, calls
        self.files: list[Path] = []
        self.made = 0

    def take(self, op: str) -> Path | None:
        """The file of the next call of an op, or None where none is wanted."""
        with _lock:
            if not self.left or op not in self.ops:
                return None
            self.left -= 1
            self.made += 1
            return self.folder / f"{op}_{os.getpid()}_{self.made:04}.safetensors"

    def give_back(self) -> None:
        """Want another call for one that could not be recorded."""
        with _lock:
            self.left += 1


@contextmanager
def record(
    folder: str | os.PathLike[str], *, calls: int = MOST, ops: Sequence[str] | None = None
) -> Iterator[list[Path]]:
    """Write each call of this process to a file of its own, for ``mla-kernels replay``.

    A file holds every argument and result, of a cache the pages that the call refers to, and versions. The launch
    itself is unchanged, but the device is synchronised before and after it. Files hold what the cache holds: look at
    whom you give them to.

    Parameters
    ----------
    folder : str or path
        Made where it is missing.
    calls : int
        How many calls to record; recording then ends.
    ops : sequence of str, optional
        The ops to record; by default all.

    Yields
    ------
    list of paths
        The files written so far.

    Raises
    ------
    ValueRangeError
        ``calls`` or ``ops`` is nothing that can be recorded.
    UnsupportedError
        Raised by a launch that a CUDA graph captures: its values are not there yet.

    Examples
    --------
    >>> import tempfile, torch, mla_kernels as mla
    >>> from mla_kernels.diagnostics import record
    >>> with record(tempfile.mkdtemp()) as files:
    ...     merged, _ = mla.merge_states(torch.ones(2, 1, 1, 8), torch.zeros(2, 1, 1))
    >>> len(files)
    1
    """
    tables.require("torch", "mla-kernels[torch]")
    recorder = _recorder(folder, calls, ops)
    _switch_on(recorder)
    try:
        yield recorder.files
    finally:
        _switch_off(recorder)


def from_environment() -> None:
    """Switch recording on as the environment asks; the package calls it when it is imported.

    Raises
    ------
    ValueRangeError
        ``MLA_KERNELS_RECORD_CALLS`` is not a number of calls, or ``MLA_KERNELS_RECORD`` no folder that can be made.
    MissingPackageError
        torch is not installed.
    """
    calls = os.environ.get(CALLS, str(MOST))
    if not calls.isdecimal():
        raise ValueRangeError(CALLS, repr(calls), "a number of calls")
    try:
        recorder = _recorder(os.environ[FOLDER], int(calls), None)
    except OSError as error:
        accepts = f"a folder that exists or can be made: {error.strerror}"
        raise ValueRangeError(FOLDER, repr(os.environ[FOLDER]), accepts) from error
    _switch_on(recorder)


def stop() -> None:
    """Record nothing more; ``replay`` calls it, whose launches are no calls of the program that was recorded."""
    for recorder in tuple(_active):
        _switch_off(recorder)


def _recorder(folder: str | os.PathLike[str], calls: int, ops: Sequence[str] | None) -> Recorder:
    named = frozenset(KERNELS if ops is None else (ops,) if isinstance(ops, str) else ops)
    if unknown := sorted(named - KERNELS.keys()):
        raise ValueRangeError("ops", repr(unknown[0]), ", ".join(KERNELS))
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return Recorder(path, named, count("calls", calls, 1))


def _switch_on(recorder: Recorder) -> None:
    if find_spec("torch") is None:
        raise MissingPackageError("torch", "mla-kernels[torch]")
    with _lock:
        _active.append(recorder)
        for op, kind in KERNELS.items():
            if op not in _own:
                _own[op] = kind.launch
                _put(op, _replaced(op, kind.launch))


def _switch_off(recorder: Recorder) -> None:
    with _lock:
        if recorder in _active:
            _active.remove(recorder)
        if not _active:
            for op, launch in _own.items():
                _put(op, launch)
            _own.clear()


def _put(op: str, launch: Callable[..., Any]) -> None:
    """Make it the launch of all kernels of an op."""
    kind: Any = KERNELS[op]
    kind.launch = kind.__call__ = launch


def _replaced(op: str, launch: Callable[..., Any]) -> Callable[..., Any]:
    """A launch that is recorded where a recorder wants it, the one switched on last before the others."""

    @functools.wraps(launch)
    def recorded(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
        for recorder in reversed(tuple(_active)):
            if path := recorder.take(op):
                result = _recorded(recorder, path, launch, (kernel, *args), kwargs)
                if not recorder.left:
                    _switch_off(recorder)
                return result
        return launch(kernel, *args, **kwargs)

    return recorded


def _recorded(
    recorder: Recorder, path: Path, launch: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Launch, and write what was given and came out; what cannot be recorded is launched all the same."""
    from mla_kernels.diagnostics.recording import contents

    given = None
    try:
        given = inspect.signature(launch).bind(*args, **kwargs).arguments
        refuse_capture(given)
        call = contents.before(args[0], given)
    except Exception as error:
        recorder.give_back()
        if given is not None and isinstance(error, UnsupportedError) and error.argument == "record":
            raise
        result = launch(*args, **kwargs)  # which refuses odd arguments in its own words
        _warn(path, error)
        return result
    launched = False
    try:
        result = launch(*args, **kwargs)
        launched = True
        contents.after(call, given, result)
    except Exception as error:
        if launched and lacks_memory(error):
            recorder.give_back()
            _warn(path, error)
            return result
        if isinstance(error, MlaError) and not isinstance(error, InternalError):
            recorder.give_back()  # an argument was refused, and nothing was launched
        else:  # a device that failed says so when it is synchronised
            call.failure = f"{type(error).__name__}: {error}"
            _write(recorder, path, call)
        raise
    _write(recorder, path, call)
    return result


def refuse_capture(given: dict[str, Any]) -> None:
    """Refuse a launch that a CUDA graph captures.

    Raises
    ------
    UnsupportedError
    """
    cuda: Any = import_module("torch").cuda
    if not cuda.is_available() or not cuda.is_initialized():
        return
    capturing = cuda.is_current_stream_capturing()
    stream = given.get("stream")
    if stream and not capturing:
        with cuda.stream(cuda.ExternalStream(int(stream))):
            capturing = cuda.is_current_stream_capturing()
    if capturing:
        accepts = "a launch outside of a capture; switch recording off, or run the call eagerly"
        raise UnsupportedError("record", "a launch that a CUDA graph captures", accepts)


def _write(recorder: Recorder, path: Path, call: Any) -> None:
    """Write a file; a full disk does not end a server."""
    from mla_kernels.diagnostics.recording.call import save

    if call.failure:
        call.outputs.clear()
    try:
        save(call, path)
    except (MlaError, OSError, ValueError) as error:
        _warn(path, error)
    else:
        recorder.files.append(path)


def _warn(path: Path, error: Exception) -> None:
    warnings.warn(f"{path} was not written: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
