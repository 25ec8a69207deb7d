# SPDX-License-Identifier: Apache-2.0
"""An Eagle3 draft class of the host, taken out of the target's rotated basis.

Three places touch the target's basis, and nothing else does:

* ``combine_hidden_states``: every runner hands over the aux states here, eagerly and outside any
  captured graph; ``h = h' Qᵀ`` is computed before norms and ``fc``;
* the look-up in a token table shared with the target: ``E[ids] = E'[ids] Qᵀ``; features of images
  take the place of such rows, and a rotated vision tower makes them rotated, whoever's table it is;
* a head shared with the target, entered through the logits processor: ``x Wᵀ = ((x / g) Q) W'ᵀ``.

Norms, ``fc``, layers and everything behind them are the host's. In mode ``fold`` the first place is
replaced by a change of ``fc`` while the draft is loaded (integrations/folded_projection.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.checkpoint.draft import EMBEDDING, HEAD, ROLES, VERIFIER_HEAD, VERIFIER_NORM
from vllm_eagle3_quarot.draft.correction import Correction
from vllm_eagle3_quarot.draft.restored_head import restored_head
from vllm_eagle3_quarot.errors import QuaRotError
from vllm_eagle3_quarot.integrations.copied_embedding import fill_embedding
from vllm_eagle3_quarot.integrations.engine_config import correction_for
from vllm_eagle3_quarot.integrations.folded_projection import ProjectionFold, settle_mode
from vllm_eagle3_quarot.integrations.loaded_projection import LoadedProjection
from vllm_eagle3_quarot.integrations.original_loaders import original_loader, switch_off_host_fold
from vllm_eagle3_quarot.integrations.shared_embedding import unrotate_shared_embedding
from vllm_eagle3_quarot.integrations.target_head import rotate_at_entrance
from vllm_eagle3_quarot.integrations.unrotated_norm import first_norms, unrotate_in_norms
from vllm_eagle3_quarot.rotation import Plan
from vllm_eagle3_quarot.settings import Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    class _HostDraft(torch.nn.Module):
        """What we rely on in a host's Eagle3 draft class."""

        model: Any
        logits_processor: Any
        has_own_embed_tokens: bool
        has_own_lm_head: bool

        def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None: ...
        def combine_hidden_states(self, hidden_states: torch.Tensor) -> torch.Tensor: ...
        def embed_input_ids(self, input_ids: torch.Tensor, **options: Any) -> torch.Tensor: ...
        def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Any: ...

else:
    _HostDraft = object

logger = logging.getLogger("vllm.eagle3_quarot")


class QuaRotDraftMixin(_HostDraft):
    """Goes before an Eagle3 draft class; without a rotation to undo it changes nothing."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        with _reason_in_the_log():
            correction = correction_for(vllm_config)
        if correction is not None and correction.aux.count:
            # vLLM reads A from here, else from a nested list of layers, else it takes three.
            config = vllm_config.speculative_config.draft_model_config.hf_config
            config.num_aux_hidden_states = correction.aux.count
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._quarot: _OnDevice | None = None
        self._quarot_fold: ProjectionFold | None = None
        self._quarot_combines = False
        if correction is None:
            return
        with _reason_in_the_log():
            strict = Settings.from_additional_config(vllm_config.additional_config).strict
            correction = settle_mode(correction, self.model, strict=strict)
        switch_off_host_fold(self)
        self._quarot = _OnDevice.of(correction, next(self.parameters()).device)
        if correction.embedding == "shared":
            unrotate_shared_embedding(self.model, self._quarot.plan)
        if correction.mode == "fold":
            self._quarot_fold = ProjectionFold(correction.rotation)
        elif correction.mode == "runtime":
            norms = first_norms(self.model) if correction.aux.count else []
            unrotate_in_norms(norms, self._quarot.plan)
            self._quarot_combines = not norms
        if self._quarot.head_multiplier is not None:
            multiplier = self._quarot.head_multiplier
            rotate_at_entrance(self.logits_processor, self._quarot.plan, multiplier)

    def combine_hidden_states(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Un-rotate the aux states ``[T, A·H]``, then combine them as the host does.

        A draft without aux states gets the post-norm state ``[T, H]``, stored as ``(h / g) Q``. A
        one-dimensional argument ``[A·H]`` is the draft's own mask state for parallel drafting; it
        was never rotated and passes as it is.
        """
        if self._quarot is not None and self._quarot_combines and hidden_states.dim() > 1:
            hidden_states = self._quarot.unrotate(hidden_states)
        return super().combine_hidden_states(hidden_states)

    def embed_input_ids(self, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
        """Input embeddings ``[T, H]`` of ids ``[T]``, image features un-rotated where they go in.

        vLLM's own Eagle3 classes take ``multimodal_embeddings`` (tensors ``[n, i·H]``, stored as
        features times ``Q``) and look the placeholder up instead; a host's class may use them.
        """
        if self._quarot is not None and options.get("multimodal_embeddings") is not None:
            features = options["multimodal_embeddings"]
            options["multimodal_embeddings"] = [self._quarot.feature(item) for item in features]
        return super().embed_input_ids(input_ids, **options)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
        """Load as the host does; what is shared with the target is left out and not kept."""
        if self._quarot is None:
            return super().load_weights(weights)
        correction = self._quarot.correction
        projection = LoadedProjection()
        own = projection.watched(_own_weights(weights, correction))
        if self._quarot_fold is not None:
            own = self._quarot_fold.watched(own)
        original = original_loader(type(self))
        loaded = super().load_weights(own) if original is None else original(self, own)
        projection.verify(self)
        if correction.copied_embedding is not None:
            fill_embedding(self.model.embed_tokens, correction.copied_embedding)
        if self._quarot_fold is not None:
            self._quarot_fold.finish(self)
        table = getattr(self.model.embed_tokens, "weight", None)
        table_bytes = table.nbytes if isinstance(table, torch.Tensor) else 0
        logger.info("eagle3_quarot: %s", correction.summary(table_bytes))
        return loaded


@contextmanager
def _reason_in_the_log() -> Iterator[None]:
    """The engine reports a failed worker with a long traceback; one line says the reason."""
    try:
        yield
    except QuaRotError as error:
        logger.error("eagle3_quarot: refusing to start. %s", error)
        raise


@dataclass(frozen=True)
class _OnDevice:
    """A correction with its tensors where the draft is.

    Attributes:
        plan: ``Q``; on the CPU when no step needs it.
        head_multiplier: ``1 / g`` fp32 ``[H]`` when the head is the target's.
        post_norm_scale: ``g`` fp32 ``[H]`` when the draft takes the post-norm state.
    """

    correction: Correction
    plan: Plan
    head_multiplier: torch.Tensor | None
    post_norm_scale: torch.Tensor | None

    @classmethod
    def of(cls, correction: Correction, device: torch.device) -> _OnDevice:
        if not correction.acts_on_steps:
            device = torch.device("cpu")
        elif device.type == "cpu":
            ops.load_native()
        elif device.type == "npu":
            ops.load_ascend()
        scale = correction.final_norm.scale.to(device) if correction.final_norm else None
        return cls(
            correction=correction,
            plan=correction.rotation.plan_on(device),
            head_multiplier=1 / scale
            if scale is not None and correction.head == "shared"
            else None,
            post_norm_scale=scale if correction.aux.count == 0 else None,
        )

    def feature(self, rows: torch.Tensor) -> torch.Tensor:
        """Un-rotate the features ``[n, i·H]`` of an image; the target keeps using the original."""
        plan = self.plan
        if plan.signs.device != rows.device:
            # Mode fold leaves Q on the CPU, but an image may come at any time.
            plan = self.correction.rotation.plan_on(rows.device)
        return ops.unrotate(rows, plan)

    def unrotate(self, states: torch.Tensor) -> torch.Tensor:
        """Un-rotate ``[T, A·H]`` aux states, or the post-norm state ``[T, H]``."""
        if self.correction.aux.count > 1:
            # The host has just concatenated them, so the memory is nobody else's.
            return ops.unrotate_(states, self.plan)
        states = ops.unrotate(states, self.plan)
        if self.post_norm_scale is None:
            return states
        return (states * self.post_norm_scale).to(states.dtype)


def _own_weights(
    weights: Iterable[tuple[str, torch.Tensor]], correction: Correction
) -> Iterator[tuple[str, torch.Tensor]]:
    """Drop left-overs of training that no host knows, and a table that the target's replaces.

    A head that the host would leave uninitialised comes last.
    """
    dropped = {*ROLES[VERIFIER_NORM], *ROLES[VERIFIER_HEAD]}
    if correction.embedding != "own":
        dropped.update(ROLES[EMBEDDING])
    for name, tensor in weights:
        if name not in dropped:
            yield name, tensor
    if correction.head == "restored":
        yield HEAD, restored_head(correction)
