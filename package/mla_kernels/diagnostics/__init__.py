"""Examines an installation, times its kernels, and records calls whose result is in doubt."""

from mla_kernels.diagnostics.recording.capture import record as record
