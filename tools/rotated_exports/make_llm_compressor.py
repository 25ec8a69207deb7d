# SPDX-License-Identifier: Apache-2.0
"""Rotate the small models with llm-compressor; README.md has environment and command."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from llmcompressor import oneshot
from llmcompressor.modifiers.transform import QuIPModifier, SpinQuantModifier
from transformers import AutoModelForCausalLM

from tools.rotated_exports.float_model import write_fixture, write_float_model

COMMAND = "python -m tools.rotated_exports.make_llm_compressor"
VOCABULARY = 384

#: Name to hidden size and modifier. Its plain Hadamard matrices have powers of two as sizes.
CASES = {
    "llm-compressor-spinquant": (64, lambda: _spinquant("hadamard")),
    "llm-compressor-spinquant-random": (96, lambda: _spinquant("random-hadamard")),
    "llm-compressor-spinquant-matrix": (64, lambda: _spinquant("random-matrix")),
    "llm-compressor-quip": (64, lambda: QuIPModifier(transform_type="hadamard")),
}


def _spinquant(kind: str) -> SpinQuantModifier:
    return SpinQuantModifier(rotations=["R1", "R2"], transform_type=kind)


def main() -> None:
    """Write the fixtures."""
    with tempfile.TemporaryDirectory() as name:
        for case, (hidden, modifier) in CASES.items():
            source = Path(name, f"float-{hidden}")
            if not source.exists():
                write_float_model(source, hidden, VOCABULARY)
                write_fixture(source, f"float-{hidden}", {"command": COMMAND})
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
            oneshot(model=model, recipe=[modifier()], pipeline="datafree")
            model.save_pretrained(Path(name, case), save_compressed=True)
            provenance = {
                "command": COMMAND,
                **{tool: version(tool) for tool in ("llmcompressor", "compressed-tensors")},
            }
            write_fixture(Path(name, case), case, provenance)


if __name__ == "__main__":
    main()
