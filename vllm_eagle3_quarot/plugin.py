# SPDX-License-Identifier: Apache-2.0
"""The one entry point: group ``vllm.general_plugins``, name ``eagle3_quarot``.

vLLM calls :func:`register` in every process it starts (API server, engine core, workers, the
process that inspects model classes), before any configuration exists. An exception here would kill
a server that may not need us at all, and one while this module is imported would be swallowed, so
both are ruled out: importing is light, registering reports and goes on, and refusing happens where
a draft is loaded.
"""

from __future__ import annotations

import logging

from vllm_eagle3_quarot.settings import DISABLE_VARIABLE, is_disabled

logger = logging.getLogger("vllm.eagle3_quarot")

_registered = False


def register() -> None:
    """Register the QuaRot-aware drafts with vLLM. Idempotent, never raises."""
    global _registered
    if _registered:
        return
    _registered = True
    if is_disabled():
        logger.debug("eagle3_quarot: switched off by %s", DISABLE_VARIABLE)
        return
    try:
        from vllm_eagle3_quarot.integrations.registration import register_with_vllm

        register_with_vllm()
    except Exception as error:  # a host we do not know must still serve what does not need us
        logger.error(
            "eagle3_quarot: could not register with this vLLM (%s: %s); Eagle3 drafts on rotated "
            "targets will NOT be corrected",
            type(error).__name__,
            error,
        )
