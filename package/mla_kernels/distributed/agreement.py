"""Which exchange the ranks of a group use: all of them the same one, whatever a single rank could do."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import torch
import torch.distributed as dist

from mla_kernels.devices.driver import has_peer_atomics
from mla_kernels.distributed.collectives import gather_integers
from mla_kernels.distributed.symmetric_memory import allocator
from mla_kernels.errors import GroupError, ValueRangeError

Choice = Literal["auto", "collectives", "symmetric_memory"]
Chosen = Literal["collectives", "symmetric_memory"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
_LEAST_CAPABILITY = 9, 0
"""Of devices whose fences can release without acquiring, as the kernels in Triton have them."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TRIAL_BYTES = 4096


def choose(group: dist.ProcessGroup | None, choice: Choice) -> Chosen:
    """Return the exchange that all ranks of a group use; every rank calls it.

    The ranks first compare what they were asked for and where they run, then whether each can write the memory of all
    others, and then whether a small buffer could be mapped. So a rank that cannot decides for all, and none waits.

    Raises
    ------
    ValueRangeError
        There is no such exchange, or another rank was asked for another one.
    GroupError
        ``symmetric_memory`` was asked for, and a rank cannot; or a rank is lost or did not answer in time.
    """
    if choice not in CHOICES:
        raise ValueRangeError("exchange", repr(choice), ", ".join(CHOICES))
    device = device_of(group)
    ranks = gather_integers((CHOICES.index(choice), _host(), *_uuid(device)), group, device)
    for rank, (other, *_) in enumerate(ranks):
        if CHOICES[other] != choice:
            raise ValueRangeError("exchange", choice, f"what rank {rank} has: {CHOICES[other]}")
    if choice == "collectives" or (choice == "auto" and len(ranks) == 1):
        return "collectives"
    reason = _obstacle(device, dist.get_rank(group), [place for _, *place in ranks])
    able = gather_integers((reason is None,), group, device)
    if (0,) not in able:  # then all ranks map the buffer, or none
        reason = _failure(group, device)
        able = gather_integers((reason is None,), group, device)
    return "symmetric_memory" if (0,) not in able else _without(choice, reason, able)


def have_triton(group: dist.ProcessGroup | None, device: torch.device) -> bool:
    """Say whether all ranks of a group can run kernels in Triton on their devices; every rank calls it."""
    return all_agree(_has_triton(device), group, device)


def all_agree(agrees: bool, group: dist.ProcessGroup | None, device: torch.device) -> bool:
    """Say whether all ranks of a group agree; every rank calls it, and the host waits for all."""
    return (0,) not in gather_integers((agrees,), group, device)


def _has_triton(device: torch.device) -> bool:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return False
    try:
        from mla_kernels.distributed.peer_kernels import probe

        probe(device)
    except Exception:  # whatever a compiler that is missing or broken raises
        return False
    return True


def _without(choice: Choice, reason: str | None, able: Sequence[tuple[int, ...]]) -> Chosen:
    """Fall back to collectives where the ranks were free to choose."""
    if choice == "auto":
        return "collectives"
    unable = [str(rank) for rank, (can,) in enumerate(able) if not can]
    raise GroupError(
        f"symmetric memory cannot be used: {reason or f'see the message of rank {unable[0]}'} "
        f"(ranks that cannot: {', '.join(unable)}); exchange='auto' uses collectives instead"
    )


def device_of(group: dist.ProcessGroup | None) -> torch.device:
    """Where the ranks exchange tensors: on the current CUDA device by NCCL, otherwise on the CPU."""
    if "cuda:nccl" in dist.get_backend_config(group):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _host() -> int:
    """Return a number of this machine since it was started; containers of one machine have the same."""
    try:
        name = _BOOT_ID.read_bytes()
    except OSError:
        name = platform.node().encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:7])


def _uuid(device: torch.device) -> tuple[int, int]:
    """Return what identifies a device whatever the process numbers it; zeros of a CPU."""
    if device.type != "cuda":
        return 0, 0
    digest = hashlib.sha256(str(torch.cuda.get_device_properties(device).uuid).encode()).digest()
    return int.from_bytes(digest[:7]), int.from_bytes(digest[7:14])


def _obstacle(device: torch.device, rank: int, places: Sequence[Sequence[int]]) -> str | None:
    """Say why this rank cannot write, and count in, the memory of all others; None where it can."""
    if device.type != "cuda":
        return "the group does not exchange CUDA tensors by NCCL"
    visible = {_uuid(torch.device("cuda", other)): other for other in range(torch.cuda.device_count())}
    for peer, (host, *uuid) in enumerate(places):
        if peer == rank:
            continue
        if host != places[rank][0]:
            return f"rank {peer} is on another host"
        other = visible.get((uuid[0], uuid[1]))
        if other is None:
            return f"the device of rank {peer} is not visible to this process; see CUDA_VISIBLE_DEVICES"
        lacks = _lack(device.index, other)
        if lacks is not None:
            return f"{lacks} (rank {peer})"
    return None


def _lack(own: int, other: int) -> str | None:
    """Say what a device lacks in order to write, and count in, the memory of another."""
    if own == other:
        return "two ranks have the same device"
    if not torch.cuda.can_device_access_peer(own, other):
        return f"device {own} cannot access device {other}"
    if not has_peer_atomics(own, other):
        return f"device {own} has no atomic operations in the memory of device {other}"
    return None


def _failure(group: dist.ProcessGroup | None, device: torch.device) -> str | None:
    """Say why a small buffer could not be mapped; None where it could."""
    try:
        allocator(group, device)(_TRIAL_BYTES)
    except (ImportError, AttributeError, RuntimeError, ValueError) as error:
        return str(error)
    return None
