# SPDX-License-Identifier: Apache-2.0
"""Whether a loaded draft's ``fc`` is the one in its file.

Nobody but us may have corrected a draft that we correct. The hosts' own corrections known to us are
kept away (:mod:`.original_loaders`); this check is for those that are not known: a fold of ``Q``
into ``fc`` changes every row of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from vllm_eagle3_quarot.checkpoint.draft import PROJECTION, ROLES
from vllm_eagle3_quarot.errors import UnsupportedPairError

#: Rows compared; a fold changes all of them.
COMPARED_ROWS = 8


class LoadedProjection:
    """Remembers some rows of ``fc.weight`` as they stream by and compares them when loaded."""

    def __init__(self) -> None:
        self._rows: torch.Tensor | None = None

    def watched(
        self, weights: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Pass ``weights`` on."""
        for name, tensor in weights:
            if name in ROLES[PROJECTION] and tensor.dim() == 2 and tensor.is_floating_point():
                self._rows = tensor[:COMPARED_ROWS].cpu().clone()
            yield name, tensor

    def verify(self, draft: Any) -> None:
        """Compare with the loaded ``fc``; a packed or sharded one cannot be compared and passes.

        Raises:
            UnsupportedPairError: the loaded projection is another one.
        """
        loaded = getattr(getattr(draft.model, "fc", None), "weight", None)
        if self._rows is None or not isinstance(loaded, torch.Tensor):
            return
        seen = loaded.detach()[:COMPARED_ROWS].cpu()
        expected = self._rows.to(seen.dtype) if seen.is_floating_point() else self._rows
        if seen.shape != expected.shape or torch.equal(seen, expected):
            return
        raise UnsupportedPairError(
            "the draft's fc.weight was changed while it was loaded: this host, or another plugin, "
            "corrects drafts by itself in a way that this release does not know. Two corrections "
            "are as bad as none. Set mode to 'off' in "
            "--additional-config '{\"eagle3_quarot\": {...}}' to leave it to the host"
        )
