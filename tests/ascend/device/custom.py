# SPDX-License-Identifier: Apache-2.0
"""The operators of torch_npu and vllm-ascend on the fake device.

Those that the tests' models call have a plain torch reference in ``operators/``. Every other one is
refused by name: the fake CANN reports success for some launches and would hand out memory that
nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from tests.ascend.device.operators import (
    attention,
    drafting,
    latent_attention,
    layout,
    normalisation,
    quantisation,
    rotary,
)
from tests.kernels.npu_runtime.host_memory import computed_on_host

NAMESPACES = ("npu", "atb", "_C_ascend")

REFERENCES: dict[str, Callable[..., Any]] = {
    **attention.OPERATORS,
    **drafting.OPERATORS,
    **latent_attention.OPERATORS,
    **layout.OPERATORS,
    **normalisation.OPERATORS,
    **quantisation.OPERATORS,
    **rotary.OPERATORS,
}


class NoReferenceError(NotImplementedError):
    """An operator of the device was called for which the tests have no arithmetic."""


def compute_custom_on_host() -> list[torch.library.Library]:
    """Register references and refusals; call it once vllm-ascend's library is loaded."""
    libraries = {name: torch.library.Library(name, "IMPL") for name in NAMESPACES}
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    for qualified in sorted({*registered, *REFERENCES}):
        namespace, _, name = qualified.partition("::")
        if namespace not in libraries:
            continue
        reference = REFERENCES.get(qualified)
        kernel = _refusal(qualified) if reference is None else computed_on_host(reference)
        libraries[namespace].impl(name, kernel, "PrivateUse1", allow_override=True)
    return list(libraries.values())


def _refusal(qualified: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NoReferenceError(
            f"{qualified} has no reference; write one in tests/ascend/device/operators"
        )

    return refuse
