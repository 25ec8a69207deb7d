# SPDX-License-Identifier: Apache-2.0
"""One measurement in a process of its own: ``python -m benchmarks.load.worker CONTENDER …``.

What is timed is vLLM's own loading of the draft, from the configuration to the loaded module, with
the files in the page cache. The same with no correction at all is the contender ``neither``;
subtracting it is left to the reader of the numbers.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import sys
import time
from pathlib import Path

import pytest

from benchmarks.memory import PeakOfPrivateBytes, private_bytes
from benchmarks.own_process import answer

#: Contender: plugin mode, None where the plugin is not registered.
CONTENDERS: dict[str, str | None] = {
    "neither": None,
    "vllm-ascend": None,
    "runtime": "runtime",
    "fold": "fold",
}


def measure(contender: str, target: Path, draft: Path, release: str) -> dict[str, float]:
    """Load the draft and return seconds, and bytes beside those the process had before."""
    import torch
    from vllm.model_executor.model_loader import get_model

    from tests.contract.wheels.folding_host import FoldingHost
    from tests.contract.wheels.releases import RELEASES
    from tests.support.engine import configured_engine
    from vllm_eagle3_quarot import ops, plugin

    # Importing vLLM's draft classes is nobody's correction.
    importlib.import_module("vllm.model_executor.models.llama_eagle3")
    mode = CONTENDERS[contender]
    monkeypatch = pytest.MonkeyPatch()
    # vLLM's CPU platform packs a second copy of every table for its GEMM, which no NPU has.
    packing = "vllm.model_executor.layers.utils.dispatch_cpu_unquantized_gemm"
    monkeypatch.setattr(packing, lambda layer, remove_weight: None)
    if mode is not None:
        plugin.register()
        ops.load_native()  # compiled once per machine, when the plugin is first used
    elif contender == "vllm-ascend":
        (named,) = (each for each in RELEASES if str(each) == f"vllm-ascend-{release}")
        FoldingHost(named, monkeypatch).switch_on(target)
    settings = {"mode": mode or "off"}
    with configured_engine(target, draft, settings=settings, dtype="bfloat16") as config:
        _settle()
        before, threads = private_bytes(), torch.get_num_threads()
        with PeakOfPrivateBytes() as peak:
            started = time.perf_counter()
            module = get_model(
                vllm_config=config, model_config=config.speculative_config.draft_model_config
            )
            seconds = time.perf_counter() - started
        if not getattr(module, "has_own_embed_tokens", False):
            del module.model.embed_tokens  # as the runner does, which puts the target's there
        _settle()
        result = {
            "seconds": seconds,
            "peak_bytes": peak.bytes - before,
            "resident_bytes": private_bytes() - before,
            "threads": threads,
        }
        del module
    monkeypatch.undo()
    return result


def _settle() -> None:
    """Give what is free back to the system, so that resident bytes are bytes in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    name, target_folder, draft_folder, host_release = sys.argv[1:]
    answer(measure(name, Path(target_folder), Path(draft_folder), host_release))
