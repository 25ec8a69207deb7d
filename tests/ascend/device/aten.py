# SPDX-License-Identifier: Apache-2.0
"""torch's own operators on the fake device, computed by torch's CPU kernels.

torch_npu keeps what is Python- and host-side: allocation, views, layouts, streams, copies of whole
storages. Every operator that it would launch on the device is replaced.
"""

from __future__ import annotations

import torch

from tests.kernels.npu_runtime.host_memory import computed_on_host

#: Registered by torch_npu and needing nothing of the device: allocation, metadata, streams.
KEPT = frozenset(
    {
        "as_strided_",
        "empty.memory_format",
        "empty_like",
        "empty_strided",
        "is_pinned",
        "is_set_to",
        "new_empty_strided",
        "record_stream",
        "resize_",
        "resize_as_",
        "set_",
        "set_.source_Storage",
        "set_.source_Storage_storage_offset",
        "set_.source_Tensor",
        "_pin_memory",
    }
)
#: Operators that take operands on the host by their nature: copies, and indices as torch allows.
WITH_HOST_OPERANDS = frozenset(
    {"copy_", "_to_copy", "index.Tensor", "index_put_", "_index_put_impl_", "_copy_from_and_resize"}
)


def compute_aten_on_host() -> torch.library.Library:
    """Register the CPU's arithmetic; it lasts as long as the returned library."""
    library = torch.library.Library("aten", "IMPL")
    for qualified in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"):
        namespace, _, name = qualified.partition("::")
        if namespace != "aten" or name in KEPT:
            continue
        operator = _operator(name)
        if operator is None or _is_metadata(operator) or not _runs_on_cpu(qualified):
            continue
        kernel = computed_on_host(operator, host_operands_allowed=name in WITH_HOST_OPERANDS)
        library.impl(name, kernel, "PrivateUse1", allow_override=True)
    return library


def _operator(name: str) -> torch._ops.OpOverload | None:
    packet, _, overload = name.partition(".")
    try:
        found: torch._ops.OpOverload = getattr(
            getattr(torch.ops.aten, packet), overload or "default"
        )
    except AttributeError:
        return None  # torch_npu registers names under aten that have no schema there
    return found


def _is_metadata(operator: torch._ops.OpOverload) -> bool:
    """A view; ``contiguous`` counts as one in torch, but copies."""
    return operator.is_view and operator is not torch.ops.aten.contiguous.default


def _runs_on_cpu(qualified: str) -> bool:
    keys = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(qualified, key) for key in keys)
