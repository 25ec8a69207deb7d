# SPDX-License-Identifier: Apache-2.0
"""vLLM's own CPU platform as a host: what it lacks to serve an msModelSlim target with Eagle3.

Nothing here acts on another platform. On Ascend, vllm-ascend loads these checkpoints itself.
"""

from __future__ import annotations

__all__ = ["is_cpu_host", "register_cpu_host"]


def is_cpu_host() -> bool:
    """True when vLLM's own CPU platform is the active one."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def register_cpu_host() -> None:
    """Make vLLM's CPU platform load msModelSlim checkpoints and run Eagle3; idempotent.

    Does nothing unless the active platform is the CPU. Cheap: it runs in every process of a server,
    most of which never load a model.
    """
    if not is_cpu_host():
        return

    from vllm_eagle3_quarot.integrations.cpu.faults import repair_faults
    from vllm_eagle3_quarot.integrations.cpu.msmodelslim import register_msmodelslim

    repair_faults()
    register_msmodelslim()
