# SPDX-License-Identifier: Apache-2.0
"""Everything that is registered with vLLM, in one place.

A host that lacks something we need is not a reason to stop a server, since most servers have no
rotated target. So the draft classes are registered all the same, as guards: a draft that would need
the correction is refused when it is built, any other is served as the host made it.
"""

from __future__ import annotations

import logging

from vllm_eagle3_quarot.integrations.architectures import (
    wrap_eagle3_architectures,
    wrap_later_registrations,
)
from vllm_eagle3_quarot.integrations.cpu import is_cpu_host, register_cpu_host
from vllm_eagle3_quarot.integrations.host import installed_hosts, unmet_hooks, warnings_about

logger = logging.getLogger("vllm.eagle3_quarot")

REMEDY = (
    "Install a release of this plugin that knows this host, or a host from the tested range "
    "(docs/en/hooks.md)"
)

#: What this process's hosts lack. Not empty: no draft is corrected.
unmet: list[str] = []


def register_with_vllm() -> None:
    """Wrap the draft architectures of the registry and, on the CPU platform, complete the host."""
    hosts = installed_hosts()
    for warning in warnings_about(hosts):
        logger.warning("eagle3_quarot: %s", warning)
    unmet[:] = unmet_hooks(hosts)
    if unmet:
        logger.error(
            "eagle3_quarot: not registered for correction, this host lacks what it needs: %s. "
            "Eagle3 drafts on rotated targets will be refused. %s",
            "; ".join(unmet),
            REMEDY,
        )
    wrap_eagle3_architectures()
    wrap_later_registrations()
    unmet_on_cpu = unmet_hooks(hosts, "cpu") if is_cpu_host() else []
    if unmet_on_cpu:
        logger.error(
            "eagle3_quarot: quantised msModelSlim checkpoints cannot be served on this CPU host, "
            "which lacks what that needs: %s. %s",
            "; ".join(unmet_on_cpu),
            REMEDY,
        )
    elif not unmet:
        register_cpu_host()
