"""Every command of the project: ``nox -l`` lists them, ``nox -s NAME`` runs one."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import nox

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
TORCH = "torch==2.13.0"
PYPROJECT = nox.project.load_toml("pyproject.toml")
CPP = ("*.h", "*.cpp", "*.cu", "*.cuh")

nox.options.sessions = ["check", "lint", "tests", "demo"]
nox.options.reuse_existing_virtualenvs = True


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group."""
    return nox.project.dependency_groups(PYPROJECT, name)


def install_toolkit(session: nox.Session, payload: str) -> None:
    """Install what the pyproject of a GPU payload requires to build it, and the tools that read machine code."""
    project = nox.project.load_toml(ROOT / "generated" / payload / "pyproject.toml")
    requires = project["build-system"]["requires"]
    toolkit = next(name for name in requires if name.startswith("cuda-toolkit"))
    tools = f"cuda-toolkit[cuobjdump,nvdisasm]=={toolkit.partition('==')[2]}"
    session.install("build", "ninja", "rich", tools, *(name for name in requires if "cutlass" not in name))
    # Headers are all that is used of CUTLASS; the wheel's requirements serve its Python tools.
    session.install("--no-deps", *(name for name in requires if "cutlass" in name))
    (site,) = Path(session.virtualenv.location).glob("lib/python3*/site-packages")
    session.env["PATH"] = f"{site / 'nvidia' / 'cu13' / 'bin'}:{os.environ['PATH']}"
    session.env["CMAKE_BUILD_PARALLEL_LEVEL"] = str(os.cpu_count())


def payloads() -> list[str]:
    """The GPU payloads of the matrix, each a distribution of its own."""
    return sorted(path.parent.name for path in ROOT.glob("generated/*/pyproject.toml"))


def build_payload(session: nox.Session, payload: str, *options: str, folder: Path = DIST) -> Path:
    """Build the wheel of a GPU payload into ``folder`` with nvcc and CUTLASS from PyPI, and return its path.

    The requirements go into the session's environment, so that a second build compiles only what changed.
    """
    install_toolkit(session, payload)
    for old in folder.glob(f"mla_kernels_{payload}-*.whl"):
        old.unlink()
    command = ["python", "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", f"--outdir={folder}"]
    session.run(*command, *options, str(ROOT / "generated" / payload), silent=True)
    (wheel,) = folder.glob(f"mla_kernels_{payload}-*.whl")
    return wheel


def build_wheel(session: nox.Session, *options: str) -> Path:
    """Build the core wheel from the working tree into ``dist/`` and return its path."""
    for old in DIST.glob("mla_kernels-*.whl"):
        old.unlink()
    session.install("build")
    session.run("python", "-m", "build", "--wheel", f"--outdir={DIST}", *options, silent=True)
    (wheel,) = DIST.glob("mla_kernels-*.whl")
    return wheel


@nox.session
def generate(session: nox.Session) -> None:
    """Write generated/ from the matrix; `-- add <field=value>...` adds a point to the matrix first."""
    session.install(*group("codegen"))
    session.run("python", "-m", "codegen", *(session.posargs or ["generate"]))


@nox.session
def check(session: nox.Session) -> None:
    """Fail where generated/ is not what the matrix says; needs no compiler."""
    session.install(*group("codegen"))
    session.run("python", "-m", "codegen", "check")


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, mypy --strict and clang-format."""
    session.install(*group("lint"), TORCH)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    sources = [
        path
        for folder in ("package/csrc", "tests/payloads", "tests/gpu/emulation", "tests/sm100")
        for pattern in CPP
        for path in sorted(ROOT.glob(f"{folder}/**/{pattern}"))
    ]
    session.run("clang-format", "--dry-run", "--Werror", *map(str, sources), silent=True)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the core wheel into dist/; `-- PAYLOAD...` builds the wheels of GPU payloads instead."""
    for payload in session.posargs:
        if payload not in payloads():
            session.error(f"no payload {payload!r}; there are {', '.join(payloads())}")
    built = [build_payload(session, payload) for payload in session.posargs] or [build_wheel(session)]
    for path in built:
        session.log(f"built {path.relative_to(ROOT)}, {path.stat().st_size / 1e6:.2f} MB")


@nox.session
def units(session: nox.Session) -> None:
    """Build sm90, compile one unit of each op of sm100 that is not plain CUDA, and check their machine code."""
    check = ("python", str(ROOT / "ci" / "manifest.py"))
    session.run(*check, str(build_payload(session, "sm90")))
    install_toolkit(session, "sm100")
    build = ROOT / "build" / "units"
    options = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DMLA_PAYLOAD=sm100")
    session.run("cmake", "-S", "package", "-B", str(build), *options, silent=True)
    names = ["decode_qbf16_tma_individual", "merge_states_reduction", "sparse_decode_qbf16_gather_individual"]
    objects = [f"csrc/sm100/CMakeFiles/mla_sm100.dir{ROOT}/generated/sm100/{name}.cu.o" for name in names]
    session.run("ninja", "-C", str(build), *objects, silent=True)
    for path in objects[:2]:
        session.run(*check, str(build / path))
    session.install("pytest")
    session.run("pytest", "tests/sm100", "-p", "no:cacheprovider")


@nox.session
def full(session: nox.Session) -> None:
    """Build every GPU payload from nothing and check every variant's machine code; the summaries go to dist/."""
    for payload in payloads():
        shutil.rmtree(ROOT / "build" / payload, ignore_errors=True)
        start = time.monotonic()
        path = build_payload(session, payload)
        session.log(f"built {path.name} in {time.monotonic() - start:.0f} s, its requirements included")
        summary = f"--json={DIST / payload}.manifest.json"
        session.run("python", str(ROOT / "ci" / "manifest.py"), str(path), summary)


@nox.session
def gpu(session: nox.Session) -> None:
    """Install the wheels of dist/, built here or elsewhere, and run the GPU tests; `-- ARGS` go to pytest."""
    session.install(*group("test"), "torch>=2.11")
    session.install("--no-deps", "--force-reinstall", *map(str, DIST.glob("mla_kernels-*.whl")))
    session.install("--no-deps", "--force-reinstall", *map(str, DIST.glob("mla_kernels_sm90-*.whl")))
    session.install("--no-deps", "--force-reinstall", *map(str, DIST.glob("emulation/*.whl")))
    session.run("pytest", "tests/gpu", *session.posargs, env={"MLA_KERNELS_GPU": "required"})


@nox.session
def emulation(session: nox.Session) -> None:
    """Build the sm100 payload for Hopper, a plain kernel in place of CUTLASS's, into dist/emulation/."""
    options = {
        "build-dir": ROOT / "build" / "emulation",
        "cmake.define.MLA_CUDA_ARCH": "90a",
        "cmake.define.MLA_SM100_OVERRIDES": ROOT / "tests" / "gpu" / "emulation",
    }
    folder = DIST / "emulation"
    path = build_payload(session, "sm100", *(f"-C{name}={value}" for name, value in options.items()), folder=folder)
    session.install("wheel")
    session.run("python", str(ROOT / "ci" / "emulate.py"), str(path), "9.0")


@nox.session
def tests(session: nox.Session) -> None:
    """Build and install the wheel, then run the tests; `-- ARGS` go to pytest."""
    session.install(*group("test"), TORCH)
    session.install("--no-deps", "--force-reinstall", str(build_wheel(session)))
    session.run("pytest", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Build the wheel, install it in a clean environment, and run a DeepSeek-V3-shaped decode."""
    session.install(f"{build_wheel(session)}[cli]", TORCH)
    session.run("python", str(ROOT / "examples" / "decode.py"))


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the kernel tests against a payload built with AddressSanitizer and UndefinedBehaviorSanitizer."""
    session.install(*group("test"), TORCH)
    options = ("cmake.define.MLA_SANITIZE=ON", "cmake.build-type=RelWithDebInfo", "install.strip=false")
    path = build_wheel(session, *(f"-C{option}" for option in options))
    session.install("--no-deps", "--force-reinstall", str(path))
    preload = [
        session.run("gcc", f"-print-file-name={name}", external=True, silent=True) or ""
        for name in ("libasan.so", "libubsan.so", "libstdc++.so")
    ]
    session.run(
        "pytest",
        "tests/kernels",
        *session.posargs,
        env={
            "LD_PRELOAD": " ".join(path.strip() for path in preload),
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
    )


@nox.session
def bench(session: nox.Session) -> None:
    """Measure overheads, the code generator and the CPU kernels; the tables go to docs/benchmarks.md."""
    session.install(*group("test"), TORCH)
    session.install("--no-deps", "--force-reinstall", str(build_wheel(session)))
    session.run("python", str(ROOT / "ci" / "benchmarks.py"), *(session.posargs or ["--page=local"]))
