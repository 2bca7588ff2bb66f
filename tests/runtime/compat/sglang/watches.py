"""What a step does, watched: launches that can be made again, and operations by which the host waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Recorded:
    """Launches of a kernel, which can be made again on what their tensors then hold, as a CUDA graph does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernel: Any) -> None:
        self.calls: list[Callable[[], Any]] = []
        launch = type(kernel).__call__

        def watched(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls.append(lambda: launch(kernel, *args, **kwargs))
            return launch(kernel, *args, **kwargs)

        monkeypatch.setattr(type(kernel), "__call__", watched)

    def replay(self, number: int) -> torch.Tensor:
        out: torch.Tensor = self.calls[number]()[0]
        return out.flatten(0, 1).flatten(1)


class Waits(TorchDispatchMode):
    """Notes each operation by which the host waits for a tensor's content."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name in {"aten::_local_scalar_dense", "aten::_to_copy", "aten::nonzero", "aten::equal"}:
            self.names.append(name)
        return func(*args, **(kwargs or {}))
