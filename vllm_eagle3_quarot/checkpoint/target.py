# SPDX-License-Identifier: Apache-2.0
"""Facts about a target that tell whether and how its residual stream is rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint import compressed_tensors, quark
from vllm_eagle3_quarot.checkpoint.description import QuantDescription
from vllm_eagle3_quarot.checkpoint.json_file import as_object, read_json_object
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING, TARGET_FINAL_NORM, TARGET_HEAD
from vllm_eagle3_quarot.checkpoint.recorded_rotation import RecordedRotations
from vllm_eagle3_quarot.checkpoint.sidecar import find_sidecar
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.errors import CheckpointError

CONFIG_FILE = "config.json"

#: Rows compared to tell whether two tables are one: equal tables agree in all of them, and two
#: tables of a trained model differ in each.
COMPARED_ROWS = 64

#: Quantisers that record rotations in the configuration, by its ``quant_method``.
RECORDS = {
    "compressed-tensors": compressed_tensors.rotations_of,
    "quark": quark.rotations_of,
}

#: Where composite models keep the configuration of their language part.
LANGUAGE_CONFIGS = ("text_config", "llm_config")


@dataclass(frozen=True)
class TargetFacts:
    """What the files of a target say. Each file is read when a question needs it, not before: most
    targets are not rotated and must not be refused for a file that nobody here needs.

    Attributes:
        folder: the checkpoint.
        description: the quantiser's description, None when there is none.
    """

    folder: Path
    description: QuantDescription | None

    @classmethod
    def from_folder(cls, folder: Path) -> TargetFacts:
        """Look into the checkpoint in ``folder``.

        Raises:
            CheckpointError: the quantiser's description is broken; the message names it.
        """
        return cls(folder=folder, description=QuantDescription.from_folder(folder))

    @cached_property
    def hidden_size(self) -> int:
        """H, from the language model's part of the configuration.

        Raises:
            CheckpointError: the configuration is missing, broken or has no such size.
        """
        size = self._language_config.get("hidden_size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise CheckpointError(
                f"{self.folder / CONFIG_FILE}: 'hidden_size' is {size!r} where a positive number "
                "is expected"
            )
        return size

    @cached_property
    def layer_count(self) -> int | None:
        """Number of the language model's layers, None when the configuration does not say.

        Raises:
            CheckpointError: the configuration is missing or broken.
        """
        count = self._language_config.get("num_hidden_layers")
        return count if isinstance(count, int) and not isinstance(count, bool) else None

    @cached_property
    def tie_word_embeddings(self) -> bool:
        """The configuration's word on whether head and embedding are one table.

        Raises:
            CheckpointError: the configuration is missing or broken.
        """
        return self._language_config.get("tie_word_embeddings") is True

    @cached_property
    def tensors(self) -> TensorIndex:
        """Lazy index of the weights.

        Raises:
            CheckpointError: an index or a header is broken.
        """
        return TensorIndex.from_folder(self.folder)

    @cached_property
    def _language_config(self) -> Mapping[str, object]:
        """Top-level configuration, overlaid by the language part's where a model nests one."""
        path = self.folder / CONFIG_FILE
        config = read_json_object(path)
        for key in LANGUAGE_CONFIGS:
            if config.get(key) is not None:
                return {**config, **as_object(config[key], path, key)}
        return config

    @cached_property
    def sidecar(self) -> Path | None:
        """The rotation file that the checkpoint brings, None when it brings none."""
        return find_sidecar(self.folder, self.description)

    @cached_property
    def recorded_rotations(self) -> RecordedRotations | None:
        """What another quantiser than msModelSlim recorded about rotations, None when none did.

        Raises:
            CheckpointError: the configuration is missing or broken.
        """
        path = self.folder / CONFIG_FILE
        quantization = self._language_config.get("quantization_config")
        if quantization is None:
            return None
        record = as_object(quantization, path, "quantization_config")
        method = record.get("quant_method")
        read = RECORDS.get(method) if isinstance(method, str) else None
        return None if read is None else read(record, path)

    @cached_property
    def final_norm_name(self) -> str | None:
        """Name of the final RMSNorm's scale, None when it has none of the known names."""
        return self.tensors.first_of(TARGET_FINAL_NORM)

    @cached_property
    def final_norm(self) -> torch.Tensor | None:
        """The final RMSNorm's scale ``[H]`` in its stored dtype, None when it is not found."""
        name = self.final_norm_name
        return None if name is None else self.tensors.read(name)

    @cached_property
    def final_norm_is_ones(self) -> bool:
        """True when the final RMSNorm's scale is exactly one everywhere.

        Every tool that rotates the residual stream offline folds that scale into the head first and
        leaves ones behind; a trained model never has them.
        """
        return self.final_norm is not None and bool((self.final_norm == 1).all())

    @cached_property
    def head_equals_embedding(self) -> bool:
        """True when head and token embedding are one table, stored once or twice."""
        embedding = self.tensors.first_of(TARGET_EMBEDDING)
        head = self.tensors.first_of(TARGET_HEAD)
        if embedding is None:
            return False
        if head is None:
            return self.tie_word_embeddings
        shape = self.tensors.shape(embedding)
        if shape != self.tensors.shape(head):
            return False
        rows = sample_rows(shape[0])
        return torch.equal(
            self.tensors.read_rows(embedding, rows), self.tensors.read_rows(head, rows)
        )


def sample_rows(count: int, wanted: int = COMPARED_ROWS) -> list[int]:
    """Return at most ``wanted`` row numbers spread evenly over ``count`` rows."""
    step = max(1, count // wanted)
    return list(range(0, count, step))[:wanted]
