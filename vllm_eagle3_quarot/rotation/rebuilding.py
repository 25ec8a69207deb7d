# SPDX-License-Identifier: Apache-2.0
"""Making ``Q`` again from a quantiser's record, for checkpoints that do not store the matrix.

Two constructions are determined by their record; ``b`` is the block size, ``Hd`` the natural-order
Hadamard matrix, and the stored token table is ``E' = E Q`` in both:

* ``hadamard``: ``Hd_b / √b`` for a power of two (llm-compressor, AMD Quark);
* ``random-hadamard``: ``diag(s) (Kᵀ ⊗ Hd_m) / √b`` with ``b = k m`` and ``K`` the largest Hadamard
  matrix in compressed-tensors' table whose order ``k`` leaves a power of two (llm-compressor).
  ``s`` are the first ``b`` draws of a torch generator that nobody seeded. That is torch's own
  constant seed, but the record does not say so: it is an assumption, to be confirmed by numbers.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from vllm_eagle3_quarot.checkpoint.recorded_rotation import ResidualRotation
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation.factorisation import Structure, factorise
from vllm_eagle3_quarot.rotation.rotation import Rotation

#: Where compressed-tensors, which vLLM depends on, keeps its Hadamard matrices: int8 ``[k, k]``
#: under the name of the order.
TABLE_PACKAGE = "compressed_tensors"
TABLE_FILE = "transform/utils/hadamards.safetensors"

UNSEEDED = "compressed-tensors drew the signs from torch's generator without seeding it"

SUPPLY = (
    'Pass the matrix with --additional-config \'{"eagle3_quarot": {"rotation": "<file>"}}\' '
    "(safetensors, tensor 'global_rotation', fp32 [H, H], h' = h Q)"
)
QUANTISE_AGAIN = "quantise again with a rotation of type 'hadamard'"


def rebuild(recorded: ResidualRotation, hidden_size: int, checkpoint: Path) -> Rotation:
    """Make the rotation of ``hidden_size`` channels that ``checkpoint`` records.

    Raises:
        RotationError: the record does not determine ``Q``; the message says why and what to do.
    """
    where = f"{checkpoint}: {recorded.tool} rotated the residual stream ('{recorded.key}')"
    if not recorded.is_orthogonal:
        raise RotationError(
            f"{where} {recorded.obstacle}. No Eagle3 draft of the original model can work on it: "
            f"{QUANTISE_AGAIN}"
        )
    if recorded.construction is None:
        raise RotationError(
            f"{where} {recorded.obstacle}. Without it every Eagle3 proposal would be rejected. "
            f"{SUPPLY}, or {QUANTISE_AGAIN}"
        )
    block = recorded.block or hidden_size
    source = f"rebuilt from '{recorded.key}' of {checkpoint}"
    if recorded.construction == "random-hadamard":
        structure = _random_hadamard(block, where)
        return Rotation.from_structure(structure, hidden_size, source=source, assumption=UNSEEDED)
    if block & (block - 1):
        raise RotationError(
            f"{where} by a Hadamard matrix of order {block}, no power of two, from a table of its "
            f"own. Without it every Eagle3 proposal would be rejected. {SUPPLY}, or quantise again "
            "with blocks whose size is a power of two"
        )
    one = torch.ones(1, 1)
    return Rotation.from_structure(_structure(torch.ones(block), one), hidden_size, source=source)


def _random_hadamard(block: int, where: str) -> Structure:
    draws = torch.randint(0, 2, (block,), generator=torch.Generator(), dtype=torch.float64)
    return _structure((draws * 2 - 1).float(), _table(block, where).T.contiguous())


def _structure(signs: torch.Tensor, factor: torch.Tensor) -> Structure:
    """``diag(signs) (factor ⊗ Hd) / √b``, with powers of two taken out of ``factor`` as well."""
    inner = factorise(factor)
    assert inner is not None  # any matrix of ±1 has at least the trivial structure
    block, order = signs.shape[0], factor.shape[0]
    return Structure(
        signs=signs * inner.signs.repeat_interleave(block // order),
        factor=inner.factor,
        power=inner.power * (block // order),
        scale=float(torch.tensor(block**-0.5, dtype=torch.float32)),
    )


def _table(block: int, where: str) -> torch.Tensor:
    """The matrix of ±1 fp32 ``[k, k]`` that compressed-tensors takes for ``block`` channels."""
    spec = importlib.util.find_spec(TABLE_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise RotationError(
            f"{where} by a matrix from the table of the package 'compressed-tensors', which is not "
            f"installed. Install it, or: {SUPPLY}"
        )
    path = Path(folders[0]) / TABLE_FILE
    try:
        with safe_open(path, framework="pt") as tables:
            names = list(tables.keys())
            orders = sorted(map(int, names), reverse=True)
            for order in orders:
                power, rest = divmod(block, order)
                if rest == 0 and power & (power - 1) == 0:
                    return tables.get_tensor(str(order)).float()  # type: ignore[no-any-return]
    except (SafetensorError, OSError, ValueError) as error:
        raise RotationError(
            f"{where} by a matrix from {path}, which cannot be read ({error}). Install "
            f"compressed-tensors again, or: {SUPPLY}"
        ) from error
    raise RotationError(
        f"{where} by a random Hadamard matrix of order {block}, which the table in {path} does not "
        f"have. {SUPPLY}, or {QUANTISE_AGAIN}"
    )
