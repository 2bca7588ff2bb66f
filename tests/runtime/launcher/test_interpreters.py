"""One interpreter of a process has the package: the others are told so when they import it."""

from __future__ import annotations

import os
import subprocess
import sys

RUN = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
LEGACY = ("legacy",) if sys.version_info >= (3, 13) else ()
SHARED = {"isolated": False} if sys.version_info < (3, 13) else {}

def run(code, *configuration, **options):
    '''Run code in a new interpreter, and return what it raised in words.'''
    identifier = interpreters.create(*(configuration or LEGACY), **(options or SHARED))
    try:
        failed = interpreters.run_string(identifier, code)
    except Exception as error:
        return str(error)
    return f"{failed.type.__name__}: {failed.msg}" if failed else ""
"""
REFUSED = "mla_kernels is imported by another interpreter of this process, and works in one only"
LOOKUP = "import mla_kernels as mla\nmla.lookup(op='decode', q_dtype='bf16', arch='cpu')\n"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", RUN + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_interpreter_is_refused_and_the_first_keeps_its_errors():
    said = run(f"""
{LOOKUP}
print(run({LOOKUP!r}))
try:
    mla.decode(q=0, kv_cache=0, block_table=0, seq_lens=0, softmax_scale=1.0)
except mla.MlaError as error:
    print("caught", type(error).__name__)
""")
    assert "ImportError" in said
    assert REFUSED in said
    assert said.splitlines()[-1] == "caught DTypeError"


def test_the_interpreter_that_comes_first_has_the_package():
    said = run(f"""
assert run({LOOKUP!r}) == ""
try:
    import mla_kernels
except ImportError as error:
    print(error)
""")
    assert said.startswith(REFUSED)


def test_an_interpreter_may_import_the_launcher_again():
    said = run(f"""
{LOOKUP}
del sys.modules["mla_kernels._launcher"]
import mla_kernels._launcher
print(mla_kernels._launcher.VERSION == mla.__version__)
""")
    assert said == "True\n"


def test_an_isolated_interpreter_is_refused():
    """It has a GIL of its own since Python 3.12, which refuses the module itself."""
    said = run(f"""
{LOOKUP}
print(run("import mla_kernels", *(("isolated",) if LEGACY else ()), **({{}} if LEGACY else {{"isolated": True}})))
""")
    assert "ImportError" in said
    assert ("does not support loading in subinterpreters" if sys.version_info >= (3, 12) else REFUSED) in said


def test_a_daemon_thread_may_be_in_a_call_while_the_interpreter_ends(noop_library):
    """An object that the interpreter deletes at its end lets the call return."""
    code = f"""
import os, threading, time
from pathlib import Path
import torch
from tests.support.native.noop import Noop, arguments

told, told_by = os.pipe()
awaited, answer = os.pipe()

class Last:
    def __del__(self, answer=answer, write=os.write, sleep=time.sleep):
        write(answer, b"x")
        sleep(0.5)
        write(1, b"ended")

noop = Noop(Path({str(noop_library)!r}))
noop.meet(told_by, awaited)
given = arguments("gather_kv"), torch.zeros(16, dtype=torch.uint8)
threading.Thread(target=noop.kernel("gather_kv").plan, args=given, daemon=True).start()
os.read(told, 1)
last = Last()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ended"), done.stderr
