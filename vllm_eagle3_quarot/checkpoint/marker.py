# SPDX-License-Identifier: Apache-2.0
"""The mark of a draft that was aligned to one rotation offline.

It stands twice: in ``config.json`` under :data:`MARKER_KEY`, and in the safetensors metadata of the
file with the projection, so that exchanging one of the two does not lose it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.json_file import as_object
from vllm_eagle3_quarot.errors import CheckpointError

MARKER_KEY = "eagle3_quarot"

CONVENTION = "row vectors, h' = h Q; fc' = fc diag(gamma) blockdiag(Q, ..., Q), gamma' = 1"


@dataclass(frozen=True)
class AlignmentMarker:
    """What was done to a draft.

    Attributes:
        rotation: fingerprint of ``Q``.
        tool: version of this package that wrote it.
        convention: what aligning means, in words.
        added: names of tensors that the draft did not have before.
        replaced: names of tensors whose former content is gone.
    """

    rotation: str
    tool: str
    convention: str = CONVENTION
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """The mark as a JSON object."""
        return {
            "aligned": {
                "rotation": self.rotation,
                "convention": self.convention,
                "tool": self.tool,
                "added": list(self.added),
                "replaced": list(self.replaced),
            }
        }

    @classmethod
    def from_document(cls, document: Mapping[str, object], path: Path) -> AlignmentMarker | None:
        """Find the mark in a configuration, None when there is none.

        Raises:
            CheckpointError: there is one, and it is not what this package writes.
        """
        if document.get(MARKER_KEY) is None:
            return None
        aligned = as_object(document[MARKER_KEY], path, MARKER_KEY).get("aligned")
        if aligned is None:
            return None
        fields = as_object(aligned, path, f"{MARKER_KEY}.aligned")
        texts = [fields.get(key) for key in ("rotation", "tool", "convention")]
        lists = [fields.get(key, []) for key in ("added", "replaced")]
        if not all(isinstance(text, str) for text in texts) or not all(map(_strings, lists)):
            raise CheckpointError(
                f"{path}: '{MARKER_KEY}.aligned' is damaged, so whether this draft is aligned is "
                "unknown; align the original draft again"
            )
        return cls(*map(str, texts), *map(tuple, lists))  # type: ignore[arg-type]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str], path: Path) -> AlignmentMarker | None:
        """Find the mark in the metadata of a safetensors file, None when there is none.

        Raises:
            CheckpointError: there is one, and it is not what this package writes.
        """
        text = metadata.get(MARKER_KEY)
        if text is None:
            return None
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}: metadata '{MARKER_KEY}' is no JSON") from error
        return cls.from_document({MARKER_KEY: document}, path)


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
