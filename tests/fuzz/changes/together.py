"""The same launch from several threads at once, and from a forked child while the parent launches: bit-equal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.judge import FaultError, bits_of, kernel_of, lay
from tests.fuzz.memory import Space
from tests.fuzz.model import Answer
from tests.fuzz.problems.case import RETURNED, Case, Maker

PATIENCE = 30.0
"""Seconds that a child has for a launch of milliseconds, on a machine that others load too."""


def crowded(make: Maker, case: Case) -> Case:
    """Launch a legal case from threads, or rarely from a child."""
    forks = make.device == "cpu" and make.chance(0.25)
    case.kind = "fork" if forks else "threads"
    for name in (*RETURNED[case.op], "check"):
        case.arguments.pop(name, None)
    case.how, case.label = "together", case.kind
    if case.op == "merge_states" and case.variant.traits["out_dtype"] != case.variant.traits["in_dtype"]:
        case.arguments["out_dtype"] = case.variant.traits["out_dtype"]
    if case.op == "gather_kv":
        case.arguments["out_dtype"] = case.variant.traits["out_dtype"]
    case.notes["framework"] = "torch"
    return case


def digest(case: Case, result: Any, answers: dict[str, Answer]) -> tuple[bytes, ...]:
    """The bytes of what a call returned, without elements that it leaves as they were."""
    found = []
    for name, part in zip(RETURNED[case.op], result if isinstance(result, tuple) else (result,), strict=False):
        if part is None:
            continue
        bits = bits_of(part)
        if name in answers and (untouched := answers[name].untouched) is not None:
            bits = bits[np.broadcast_to(~untouched, bits.shape)]
        found.append(bits.tobytes())
    return tuple(found)


def launches(case: Case, space: Space) -> Callable[[], tuple[bytes, ...]]:
    """The launch, which allocates its outputs."""
    import mla_kernels as mla

    arguments = lay(case, space)
    kernel_of(case)
    op = getattr(mla, case.op)
    answers = case.answers() if "cu_seqlens_q" in case.arguments else {}
    return lambda: digest(case, op(**arguments), answers)


def threads(case: Case, space: Space) -> None:
    """Raise a fault unless every thread has the same answer."""
    launch = launches(case, space)
    want = launch()
    found: list[Any] = []

    def work() -> None:
        try:
            found.extend(launch() for _ in range(3))
        except BaseException as error:
            found.append(repr(error))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    odd = [answer for answer in found if answer != want]
    if odd or len(found) != 9:
        said = [answer if isinstance(answer, str) else "other bytes" for answer in odd]
        raise FaultError("threads differ", f"{len(odd)} of 9 launches: {said[:2]}")


def fork(case: Case, space: Space) -> None:
    """Raise a fault unless a child that is forked during launches has the parent's answer."""
    launch = launches(case, space)
    want, stop = launch(), threading.Event()
    wrong: list[str] = []

    def work() -> None:
        while not stop.is_set():
            if launch() != want:
                wrong.append("the parent's answer differs")

    worker = threading.Thread(target=work)
    worker.start()
    child = os.fork()
    if child == 0:
        os._exit(0 if launch() == want else 9)
    status = waited(child)
    stop.set()
    worker.join()
    if wrong or launch() != want:
        raise FaultError("threads differ", "the parent has another answer after a fork")
    if status:
        raise FaultError("a forked child fails", status)


def waited(child: int) -> str:
    """Wait for a child; what it failed of, or nothing."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "" if status == 0 else f"status {status}"
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it hangs"


RUN = {"threads": threads, "fork": fork}
