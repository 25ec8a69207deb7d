# SPDX-License-Identifier: Apache-2.0
"""The command line of ``vllm serve`` for a pair that somebody brings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_eagle3_quarot.serving.ports import HOST

MODEL = "benchmark"
"""Name under which every server offers its target."""


@dataclass(frozen=True)
class PairLaunch:
    """How to serve a pair.

    Attributes:
        target: folder or hub id.
        draft: folder or hub id; None serves without speculation.
        speculative_tokens: K.
        settings: the ``eagle3_quarot`` object of ``--additional-config``.
        arguments: of ``vllm serve``, as the user gave them; they come last and win.
    """

    target: str
    draft: str | None
    speculative_tokens: int
    settings: Mapping[str, object]
    arguments: tuple[str, ...] = ()

    def command(self, port: int) -> list[str]:
        """Return the argument vector, run by the interpreter that runs us."""
        command = [
            *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", self.target),
            *("--host", HOST, "--port", str(port), "--served-model-name", MODEL),
            *("--additional-config", json.dumps({"eagle3_quarot": dict(self.settings)})),
        ]
        if self.draft is not None:
            speculation = {
                "method": "eagle3",
                "model": self.draft,
                "num_speculative_tokens": self.speculative_tokens,
            }
            command += ["--speculative-config", json.dumps(speculation)]
        return [*command, *self.arguments]

    def full_environment(self) -> dict[str, str]:
        """The caller's environment."""
        return dict(os.environ)
