# SPDX-License-Identifier: Apache-2.0
"""Schemas of ``torch.ops.eagle3_quarot`` and who implements them.

Every operator takes the rotation as the three fields of :class:`~vllm_eagle3_quarot.rotation.Plan`:
``signs`` fp32 ``[b]``, ``factor`` fp32 ``[k, k]`` and ``power`` = m, with ``k * m == b``. The
hidden size itself is not needed: channels are transformed in blocks of ``b``, of which H and A·H
are multiples.

The composite implementation (:mod:`.reference`) serves every device. A native kernel takes over by
being registered for its dispatch key (CPU: :mod:`.native`; PrivateUse1); nothing else changes.
"""

from __future__ import annotations

import torch

from vllm_eagle3_quarot.ops import autograd, fake, reference

NAMESPACE = "eagle3_quarot"

_ROTATION = "Tensor signs, Tensor factor, int power"

#: Operator name to the rest of its schema.
SCHEMAS = {
    "unrotate": f"(Tensor x, {_ROTATION}) -> Tensor",
    "unrotate_": f"(Tensor(a!) x, {_ROTATION}) -> ()",
    "unrotate_concat": f"(Tensor[] aux, {_ROTATION}) -> Tensor",
    "unrotate_norm": f"(Tensor[] states, {_ROTATION}, Tensor[] gammas, float eps) -> Tensor",
    "embedding_unrotate": (
        f"(Tensor ids, Tensor table, {_ROTATION}, int vocab_start, int vocab_end) -> Tensor"
    ),
    "rotate": f"(Tensor x, {_ROTATION}, Tensor? multiplier=None) -> Tensor",
}

_library: torch.library.Library | None = None


def register_ops() -> None:
    """Define the operators once per process."""
    global _library
    if _library is not None:
        return
    library = torch.library.Library(NAMESPACE, "DEF")
    for name, signature in SCHEMAS.items():
        library.define(name + signature, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, reference.IMPLEMENTATIONS[name], "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake.FAKES[name], lib=library)
        autograd.refuse_backward(library, f"{NAMESPACE}::{name}")
    _library = library
