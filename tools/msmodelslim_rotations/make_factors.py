# SPDX-License-Identifier: Apache-2.0
"""Write the small Hadamard matrices of msModelSlim's rotations as data of the package.

Run with msModelSlim 26.1.0 installed (see ../reference_pair/requirements.txt)::

    python tools/msmodelslim_rotations/make_factors.py

writes ``vllm_eagle3_quarot/rotation/hadamard_factors.safetensors``: for every order ``k`` that the
tool knows, the signs of ``K^T`` as bits (set for -1, rows padded to bytes). At size ``k`` the
tool's rotation is ``diag(s) K^T c``, and ``s`` follows from the seed, so ``K^T`` is read off it.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from msmodelslim.processor.quarot.common.quarot_utils import QuaRotMode, create_rot
from safetensors.torch import save_file

OUTPUT = (
    Path(__file__).parents[2] / "vllm_eagle3_quarot" / "rotation" / "hadamard_factors.safetensors"
)
ORDERS = (12, 20, 28, 36, 40, 52, 60, 76, 108, 136, 140, 156, 160, 172, 200)
SEED = 1234


def main() -> None:
    """Write the file."""
    tensors: dict[str, torch.Tensor] = {}
    for order in ORDERS:
        rotation = create_rot(QuaRotMode.HADAMARD, order, -1, seed=SEED).double()
        bits = np.random.RandomState(SEED).randint(0, 2**32, size=order, dtype=np.uint32) & 1
        signs = torch.from_numpy(bits.astype(np.float64)) * 2 - 1
        factor = signs[:, None] * rotation.sign()
        if not torch.equal(factor @ factor.T, order * torch.eye(order, dtype=torch.float64)):
            raise SystemExit(f"order {order}: not a Hadamard matrix")
        packed = np.packbits((factor < 0).numpy(), axis=1)
        tensors[str(order)] = torch.from_numpy(packed)
    save_file(tensors, OUTPUT, metadata={"msmodelslim": version("msmodelslim")})


if __name__ == "__main__":
    main()
