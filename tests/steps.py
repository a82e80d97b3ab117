"""How many steps of the interpreter a call takes in the product's code: the same on every machine, quiet or not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import prompt_sidecar

PRODUCT: Final = str(Path(prompt_sidecar.__file__).parent)


def steps(call: Callable[[], object], within: str = "") -> int:
    """Instructions that `call` runs in the product's files, or in those of the folder named `within`."""
    folder = Path(PRODUCT, within)
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    taken = 0

    def local(_: FrameType, event: str, __: Any) -> Any:
        nonlocal taken
        taken += event == "opcode"
        return local

    def trace(frame: FrameType, _: str, __: Any) -> Any:
        if not frame.f_code.co_filename.startswith(str(folder)):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return taken


def growth(call: Callable[[int], object], size: int, times: int = 4, within: str = "") -> float:
    """How many times the steps grow when the size grows `times`; `times` itself is what is linear."""
    return steps(lambda: call(times * size), within) / steps(lambda: call(size), within)
