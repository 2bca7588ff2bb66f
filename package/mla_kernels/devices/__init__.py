"""What this machine can run kernels on."""

from mla_kernels.devices.machine import HOST as HOST
from mla_kernels.devices.machine import Device as Device
from mla_kernels.devices.machine import arch_for as arch_for
from mla_kernels.devices.machine import arch_of as arch_of
from mla_kernels.devices.machine import current_arch as current_arch
from mla_kernels.devices.machine import devices as devices
