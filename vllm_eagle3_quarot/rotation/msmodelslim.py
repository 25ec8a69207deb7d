# SPDX-License-Identifier: Apache-2.0
"""The rotation that msModelSlim makes for a size, a block and a seed: no sidecar needed.

``Q = I ⊗ [diag(s) (Kᵀ ⊗ Hd_m)] c`` with ``c = fp32(1/√b)``. ``K`` is the largest table matrix whose
order leaves a power of two; ``s_i = 2 (u_i & 1) - 1`` with ``u_i`` the outputs of the Mersenne
twister for the seed. Versions from January 2026 on start every rotation from seed 1234; before, the
process had seed 42. Checked bit by bit against the tool (tests/unit/rotation/test_msmodelslim.py).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation.factorisation import Structure
from vllm_eagle3_quarot.rotation.rotation import Rotation

#: Seeds of released versions, the newer one first.
SEEDS = (1234, 42)

#: Made by tools/msmodelslim_rotations/make_factors.py.
FACTORS_FILE = Path(__file__).with_name("hadamard_factors.safetensors")


def msmodelslim_rotation(size: int, block: int | None = None, seed: int = SEEDS[0]) -> Rotation:
    """Return the tool's rotation of ``size`` channels, in blocks of ``block`` if given.

    Raises:
        RotationError: the tool has no rotation of that size, and stops as well.
    """
    width = size if block is None else block
    if width < 1 or size % width:
        raise RotationError(f"{size} channels cannot be divided into blocks of {width}")
    order = factor_order(width)
    if order is None:
        raise RotationError(
            f"there is no Hadamard rotation of {width} channels in msModelSlim: no table order "
            "leaves a power of two. Use a block size that is a power of two"
        )
    scale = torch.tensor(1.0) / torch.sqrt(torch.tensor(float(width)))
    structure = Structure(
        signs=twister_signs(width, seed),
        factor=table_factor(order),
        power=width // order,
        scale=float(scale),
    )
    source = f"msModelSlim's rotation for seed {seed}"
    return Rotation.from_structure(structure, size, source=source)


def factor_order(width: int) -> int | None:
    """The order of ``K`` that the tool takes for ``width`` channels, None when it has none."""
    orders = [*sorted(map(int, _packed()), reverse=True), 1]
    fitting = (order for order in orders if width % order == 0 and _power_of_two(width // order))
    return next(fitting, None)


def table_factor(order: int) -> torch.Tensor:
    """``Kᵀ`` fp32 ``[order, order]`` of ±1."""
    if order == 1:
        return torch.ones(1, 1)
    bits = np.unpackbits(_packed()[str(order)].numpy(), axis=1, count=order)
    return 1 - 2 * torch.from_numpy(bits.astype(np.float32))


def twister_signs(count: int, seed: int) -> torch.Tensor:
    """``s`` fp32 ``[count]``: low bits of the Mersenne twister, torch's ``randint(0, 2)``."""
    bits = np.random.RandomState(seed).randint(0, 2**32, size=count, dtype=np.uint32) & 1
    return torch.from_numpy(bits.astype(np.float32)) * 2 - 1


@lru_cache(maxsize=1)
def _packed() -> dict[str, torch.Tensor]:
    return load_file(FACTORS_FILE)


def _power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
