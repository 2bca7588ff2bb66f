"""Clock, power and energy of the current device, as NVML tells them."""

from __future__ import annotations

import statistics
from importlib import import_module
from typing import Any

import torch


class Power:
    """Reads NVML while kernels run; without NVML (``nvidia-ml-py``) there are no readings."""

    def __init__(self) -> None:
        self._clocks: list[float] = []
        self._watts: list[float] = []
        self._millijoules = 0
        self._nvml: Any = None
        try:
            nvml: Any = import_module("pynvml")
            nvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties().uuid}"
            self._device = nvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = nvml
        except Exception:  # NVML fails in as many ways as there are machines
            return

    def start(self) -> None:
        """Forget what was read, and note the energy counter."""
        self._clocks.clear()
        self._watts.clear()
        if self._nvml:
            self._millijoules = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device)

    def sample(self) -> None:
        """Read the SM clock and the power."""
        if self._nvml:
            self._clocks.append(self._nvml.nvmlDeviceGetClockInfo(self._device, self._nvml.NVML_CLOCK_SM))
            self._watts.append(self._nvml.nvmlDeviceGetPowerUsage(self._device) / 1e3)

    def read(self, launches: int) -> dict[str, float | None]:
        """Median SM clock in MHz, median power in watts, and millijoules of a launch, of so many since the start."""
        if not self._nvml or not self._clocks:
            return {"mhz": None, "watts": None, "mj": None}
        spent = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device) - self._millijoules
        return {
            "mhz": statistics.median(self._clocks),
            "watts": statistics.median(self._watts),
            "mj": spent / launches,
        }
