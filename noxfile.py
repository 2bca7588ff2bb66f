"""Every command of the project: ``nox -l`` lists them, ``nox -s NAME`` runs one."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
TORCH = "torch==2.13.0"
PYPROJECT = nox.project.load_toml("pyproject.toml")
CPP = ("*.h", "*.cpp")

nox.options.sessions = ["check", "lint", "tests", "demo"]
nox.options.reuse_existing_virtualenvs = True


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group."""
    return nox.project.dependency_groups(PYPROJECT, name)


def build_wheel(session: nox.Session, *options: str) -> Path:
    """Build the core wheel from the working tree into ``dist/`` and return its path."""
    shutil.rmtree(DIST, ignore_errors=True)
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
        for folder in ("package/csrc", "tests/payloads")
        for pattern in CPP
        for path in sorted(ROOT.glob(f"{folder}/**/{pattern}"))
    ]
    session.run("clang-format", "--dry-run", "--Werror", *map(str, sources), silent=True)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the core wheel into dist/."""
    session.log(f"built {build_wheel(session).name}")


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
