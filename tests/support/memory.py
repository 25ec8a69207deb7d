# SPDX-License-Identifier: Apache-2.0
"""How much memory a piece of code makes torch allocate, counted by torch's own allocator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch.autograd.profiler import profile


def peak_allocation(function: Callable[[], object], files: Path) -> int:
    """Most bytes of CPU tensors that were allocated by ``function`` and alive at one time.

    Opening one of the files under ``files`` maps it into memory, which torch reports like an
    allocation of the file's size; nothing is allocated or read by that, so it is left out.
    """
    mapped = {path.stat().st_size for path in files.rglob("*") if path.is_file()}
    with profile(profile_memory=True) as profiled:
        result = function()
    del result
    events = [e for e in profiled.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    alive = peak = 0
    for event in events:
        if abs(event.nbytes()) not in mapped:
            alive += event.nbytes()
        peak = max(peak, alive)
    return peak
