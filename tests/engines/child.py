"""What the process of an engine does about the tests that started it."""

from __future__ import annotations

import os
import signal
import threading
import time


def end_with_parent(seconds: float = 1) -> None:
    """Kill this process and every other one of its group once the process that started it is gone.

    Tests that are cut could not do so themselves.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(seconds)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
