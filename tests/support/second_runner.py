# SPDX-License-Identifier: Apache-2.0
"""tests.support.proposals on vLLM's model runner V2, with its kernels in Triton's interpreter.

vLLM's CPU build has this runner, but runs it only with a Triton that has a CPU back end, which the
published packages lack. Triton's own interpreter needs none: a back end is declared here so that
vLLM takes Triton for usable, and it is never asked for anything.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

from tests.support.proposals import Job, main

ENVIRONMENT = {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}


def declare_interpreter() -> None:
    """To be called before vLLM is imported, which looks for Triton once."""
    os.environ.update(ENVIRONMENT)
    from triton.backends import backends

    backends["cpu"] = SimpleNamespace(driver=None, compiler=None)


if __name__ == "__main__":
    declare_interpreter()
    main([Job(**job) for job in json.loads(Path(sys.argv[1]).read_text())])
