# SPDX-License-Identifier: Apache-2.0
"""The command line and environment of one ``vllm serve``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vllm_eagle3_quarot.serving.ports import HOST as HOST

PYTHON_VARIABLE = "EAGLE3_QUAROT_SERVE_PYTHON"
"""Names the interpreter that serves: that of another environment has another release of vLLM."""

MODEL = "reference"
"""Name under which every server offers its target."""

CPU_ENVIRONMENT: Mapping[str, str] = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the reference pair needs a fraction of it
    "OMP_NUM_THREADS": "2",
    # Spinning worker threads starve the API server and the engine core on a small machine.
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""Defaults for a small CPU machine; a variable that is already set keeps its value."""


@dataclass(frozen=True)
class ServeOptions:
    """What to serve, and how.

    Attributes:
        target: checkpoint folder of the target.
        draft: checkpoint folder of an Eagle3 draft; None serves without speculation.
        num_speculative_tokens: tokens drafted per step, with a draft.
        plugin: the ``eagle3_quarot`` object of ``--additional-config``; None leaves the flag out.
        dtype: vLLM's ``--dtype``.
        max_num_seqs: requests decoded together at most.
        arguments: further arguments of the command; they win over the ones from here.
        environment: variables that this server gets, whatever the caller's environment says.
        python: the interpreter; None: the one of $EAGLE3_QUAROT_SERVE_PYTHON, else ours.
    """

    target: Path
    draft: Path | None = None
    num_speculative_tokens: int = 3
    plugin: Mapping[str, object] | None = None
    dtype: str = "bfloat16"
    max_num_seqs: int = 8
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None

    def command(self, port: int) -> list[str]:
        """Return the argument vector."""
        python = self.python or os.environ.get(PYTHON_VARIABLE) or sys.executable
        command = [
            *(python, "-m", "vllm.entrypoints.cli.main"),
            *("serve", str(self.target)),
            *("--host", HOST),
            *("--port", str(port)),
            *("--served-model-name", MODEL),
            *("--dtype", self.dtype),
            *("--max-model-len", "1024"),
            *("--max-num-seqs", str(self.max_num_seqs)),
            *("--max-num-batched-tokens", "2048"),
            "--enforce-eager",  # compiling costs more time than these short runs take
        ]
        if self.draft is not None:
            speculation = {
                "method": "eagle3",
                "model": str(self.draft),
                "num_speculative_tokens": self.num_speculative_tokens,
            }
            command += ["--speculative-config", json.dumps(speculation)]
        if self.plugin is not None:
            command += ["--additional-config", json.dumps({"eagle3_quarot": dict(self.plugin)})]
        return [*command, *self.arguments]

    def full_environment(self) -> dict[str, str]:
        """Return the server's environment: defaults, then the caller's, then this server's own."""
        return {**CPU_ENVIRONMENT, **os.environ, **self.environment}
