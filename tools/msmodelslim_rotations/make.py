# SPDX-License-Identifier: Apache-2.0
"""Pin what the real msModelSlim makes, small enough to be committed.

Run with msModelSlim 26.1.0 installed (see ../reference_pair/requirements.txt)::

    python tools/msmodelslim_rotations/make.py

writes into tests/fixtures/msmodelslim_rotations/:

* ``signs.safetensors``: int8 signs of the tool's rotation at the sizes 12, 28 and 160, where the
  power-of-two part is 1, so that each is ``diag(s) K^T`` alone;
* ``fingerprints.json``: SHA-256 of the fp32 bytes of the tool's rotation at sizes of real models.

From the first a test rebuilds the matrices of the second, which are up to 200 MB each.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import torch
from msmodelslim.processor.quarot.common.quarot_utils import QuaRotMode, create_rot
from safetensors.torch import save_file

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "msmodelslim_rotations"
FACTOR_ORDERS = (12, 28, 160)
#: (hidden size, block size or -1 for the whole): Qwen3-30B-A3B, 4B; MiniMax-M2; Qwen2.5-VL-7B;
#: Qwen3-8B; Qwen3-32B; Qwen3-Coder-480B; DeepSeek; and blocks of 32.
SIZES = (
    (2048, -1),
    (2560, -1),
    (3072, -1),
    (3584, -1),
    (4096, -1),
    (5120, -1),
    (6144, -1),
    (7168, -1),
    (2880, 32),
    (5120, 32),
)


def rotation(size: int, block: int = -1) -> torch.Tensor:
    """The tool's residual rotation, fp32, with negative zeros cleared."""
    return create_rot(QuaRotMode.HADAMARD, size, block).float().contiguous() + 0.0


def main() -> None:
    """Write both fixtures."""
    FIXTURES.mkdir(parents=True, exist_ok=True)
    save_file(
        {str(order): rotation(order).sign().to(torch.int8) for order in FACTOR_ORDERS},
        FIXTURES / "signs.safetensors",
    )
    fingerprints = {
        f"{size}/{block}": hashlib.sha256(rotation(size, block).numpy().tobytes()).hexdigest()
        for size, block in SIZES
    }
    document = {
        "msmodelslim": version("msmodelslim"),
        "command": "python tools/msmodelslim_rotations/make.py",
        "sha256": fingerprints,
    }
    (FIXTURES / "fingerprints.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
