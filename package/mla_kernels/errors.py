"""Every error that this package raises, one class per cause; each says what was refused and what is accepted."""

from __future__ import annotations


class MlaError(Exception):
    """The base of all errors of this package."""


class VariantNotFoundError(MlaError, LookupError):
    """No variant serves a config; the message lists the nearest variants and why each was rejected."""


class InvalidArgumentError(MlaError, ValueError):
    """An argument was refused before any launch.

    Attributes
    ----------
    argument : str
        The name of the argument.
    got : str
        What it was.
    accepts : str
        What would have been accepted.
    """

    def __init__(self, argument: str, got: str, accepts: str) -> None:
        self.argument = argument
        self.got = got
        self.accepts = accepts

    def __str__(self) -> str:
        return f"{self.argument}: got {self.got}; accepts {self.accepts}"


class DTypeError(InvalidArgumentError):
    """An argument has another element type, or is no tensor."""


class DeviceError(InvalidArgumentError):
    """A tensor lives on a device that the kernel, or the other tensors, do not use."""


class ShapeError(InvalidArgumentError):
    """A tensor's rank or extent contradicts the kernel, its plan or another tensor."""


class StrideError(InvalidArgumentError):
    """A tensor's strides cannot be read, or overlap where the kernel writes."""


class AlignmentError(InvalidArgumentError):
    """A tensor's address is not aligned as the kernel needs."""


class ValueRangeError(InvalidArgumentError):
    """A number, a name, or an element of a tensor lies outside what is accepted."""


class WorkspaceError(InvalidArgumentError):
    """A plan or workspace buffer is too small, or is not one contiguous block."""


class UnsupportedError(InvalidArgumentError):
    """The arguments are well formed, but this kernel does not serve them."""


class PayloadError(MlaError, ImportError):
    """A payload cannot be used: it does not load, or its ABI or version differs from the core's."""


class MissingPackageError(MlaError, ImportError):
    """A package that only this command or function needs is not installed."""

    def __init__(self, package: str, requirement: str) -> None:
        super().__init__(package, requirement)

    def __str__(self) -> str:
        return "this needs {}: pip install '{}'".format(*self.args)


class GroupError(MlaError, RuntimeError):
    """The ranks of a distributed group did not exchange what they should: one is lost, late, or has another shape."""


class RecordError(MlaError, ValueError):
    """A file is not a recorded call: it is cut off, damaged, of another version, or was not written by this package."""


LEFT_BY_KERNELS = frozenset({
    "cudaErrorAssert", "cudaErrorContained", "cudaErrorECCUncorrectable", "cudaErrorHardwareStackError",
    "cudaErrorIllegalAddress", "cudaErrorIllegalInstruction", "cudaErrorInvalidAddressSpace", "cudaErrorInvalidPc",
    "cudaErrorLaunchFailure", "cudaErrorLaunchTimeout", "cudaErrorMisalignedAddress", "cudaErrorNvlinkUncorrectable",
    "cudaErrorTensorMemoryLeak",
})  # fmt: skip
"""The asynchronous errors of CUDA: after a kernel has failed, every call of the process may answer one of them."""


class InternalError(MlaError, RuntimeError):
    """A payload failed for a reason that no argument explains.

    Report it, unless the message says that an earlier kernel of the process may have failed.
    """

    def __str__(self) -> str:
        said = ": ".join(map(str, self.args))
        if len(self.args) < 2 or str(self.args[1]).partition(":")[0] not in LEFT_BY_KERNELS:
            return f"{said} (this is a bug: please report it)"
        return (
            f"{self.args[0]}: CUDA answered {self.args[1]}. This error is asynchronous: it may come from an earlier"
            " kernel of this process, of any library. Rerun with CUDA_LAUNCH_BLOCKING=1, so that the launch that failed"
            " raises it, or under compute-sanitizer, which names the access"
        )


STATUS: dict[str, type[MlaError]] = {
    "dtype": DTypeError,
    "device": DeviceError,
    "shape": ShapeError,
    "stride": StrideError,
    "alignment": AlignmentError,
    "range": ValueRangeError,
    "workspace": WorkspaceError,
    "unsupported": UnsupportedError,
    "payload": PayloadError,
    "internal": InternalError,
}
"""The class that each status of the C ABI becomes; the launcher raises them."""
