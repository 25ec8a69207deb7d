# SPDX-License-Identifier: Apache-2.0
"""The operators serve inference. Asking for a gradient is an error, never a missing gradient."""

from __future__ import annotations

from typing import Any, NoReturn

import torch


def refuse_backward(library: torch.library.Library, name: str) -> None:
    """Make ``name`` (``namespace::op``) raise NotImplementedError when a gradient is asked for.

    An operator that returns a value raises in ``backward()``, so that weights that merely have
    ``requires_grad`` (a norm's scale, say) do not stop a forward pass. An operator that writes into
    its argument has no such moment and raises when it is called on a tensor that requires grad.
    """
    message = (
        f"{name} has no gradient, it is an inference operator. Call it under "
        "torch.inference_mode(), or use Rotation.rotate / Rotation.unrotate, which differentiate"
    )
    if name.endswith("_"):
        _refuse_in_place(library, name, message)
        return

    def backward(ctx: Any, *gradients: Any) -> NoReturn:
        raise NotImplementedError(message)

    torch.library.register_autograd(name, backward, lib=library)


def _refuse_in_place(library: torch.library.Library, name: str, message: str) -> None:
    namespace, op_name = name.split("::")

    def in_place(x: torch.Tensor, *rotation: Any) -> None:
        if x.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(message)
        with torch._C._AutoDispatchBelowAutograd():
            getattr(getattr(torch.ops, namespace), op_name).default(x, *rotation)

    library.impl(op_name, in_place, "Autograd")
