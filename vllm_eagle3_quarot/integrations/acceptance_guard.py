# SPDX-License-Identifier: Apache-2.0
"""A stat logger that tells when speculation accepts nothing.

vLLM loads it from the entry point group ``vllm.stat_logger_plugins`` in the process that serves
requests, and hands it the counts that it keeps anyway: nothing is measured for it, and its own work
is two additions per engine step. Having a stat logger makes vLLM keep its statistics also under
``--disable-log-stats``; ``VLLM_PLUGINS`` without ``eagle3_quarot_guard`` leaves it out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.v1.metrics.loggers import StatLoggerBase

from vllm_eagle3_quarot.draft.acceptance import AcceptanceWindow
from vllm_eagle3_quarot.errors import SettingsError
from vllm_eagle3_quarot.integrations.engine_config import rotated_target
from vllm_eagle3_quarot.settings import Settings, is_disabled

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = logging.getLogger("vllm.eagle3_quarot")

LIKELY_CAUSES = (
    "the target is rotated and the draft uncorrected (mode 'off', 'strict' false, or this plugin "
    "left out by VLLM_PLUGINS), a draft that was made for another model or for other layers, or a "
    "wrong vocabulary map"
)


#: Methods that read the target's hidden states, too, and that we do not correct.
UNCORRECTED_METHODS = ("eagle", "medusa", "mlp_speculator", "dflash", "dspark")


class AcceptanceGuard(StatLoggerBase):
    """Warns once when an Eagle3 draft's first token is (nearly) never accepted, and once when it
    is again. One per engine; for other methods only a line where a rotated target spoils them."""

    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None:
        self._engine = engine_index
        self._window: AcceptanceWindow | None = None
        speculation = vllm_config.speculative_config
        if is_disabled() or speculation is None:
            return
        if speculation.method != "eagle3":
            if engine_index == 0 and speculation.method in UNCORRECTED_METHODS:
                _warn_of_uncorrected_method(vllm_config)
            return
        try:
            settings = Settings.from_additional_config(vllm_config.additional_config).guard
        except SettingsError:
            return  # the draft's loader says so and, with a rotated target, refuses
        if settings.min_acceptance == 0:
            return
        self._settings = settings
        self._window = AcceptanceWindow(settings)
        self._doctor = (
            f"eagle3-quarot doctor --target {vllm_config.model_config.model} "
            f"--draft {speculation.draft_model_config.model}"
        )

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        """Count one engine step."""
        if self._window is None or scheduler_stats is None:
            return
        counts = scheduler_stats.spec_decoding_stats
        if counts is None or not counts.num_accepted_tokens_per_pos:
            return
        verdict = self._window.add(counts.num_drafts, counts.num_accepted_tokens_per_pos[0])
        if verdict == "collapsed":
            logger.warning(
                "eagle3_quarot: engine %d accepted the draft's first token in only %.1f %% of the "
                "last %d drafts: speculation costs time and saves none. Likely causes: %s. To find "
                "out which: %s",
                self._engine,
                100 * self._window.rate,
                self._settings.after_drafts,
                LIKELY_CAUSES,
                self._doctor,
            )
        elif verdict == "recovered":
            logger.info(
                "eagle3_quarot: engine %d accepts the draft's first token again, in %.1f %% of the "
                "last %d drafts",
                self._engine,
                100 * self._window.rate,
                self._settings.after_drafts,
            )

    def log_engine_initialized(self) -> None:
        """Nothing to say at start-up."""


def _warn_of_uncorrected_method(vllm_config: VllmConfig) -> None:
    """One line; no refusal, because some hosts correct some of these methods by themselves."""
    target = rotated_target(vllm_config)
    if target is not None:
        logger.warning(
            "eagle3_quarot: %s is a rotated target, and this plugin does not correct method '%s' "
            "(only eagle3). Unless the host corrects it, expect an acceptance rate near 0: use an "
            "Eagle3 draft, or a target quantised without rotation",
            target,
            vllm_config.speculative_config.method,
        )
