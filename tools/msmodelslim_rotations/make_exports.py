# SPDX-License-Identifier: Apache-2.0
"""Pin the tensors of the real msModelSlim's float QuaRot exports.

Run with msModelSlim 26.1.0 installed (see ../reference_pair/requirements.txt)::

    python tools/msmodelslim_rotations/make_exports.py

quantises nothing, rotates the reference target (whole and in blocks of 32) and a tiny Qwen3-MoE,
and writes the SHA-256 of every tensor's bytes, shortened, to
``tests/fixtures/msmodelslim_rotations/exports.json``.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file
from tiny_mixture import write_tiny_mixture

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
TARGET = FIXTURES / "reference_pair" / "target"

RECIPE = """\
apiversion: modelslim_v1
metadata:
  config_id: quarot_float
  score: 90
  label: {{w_bit: 8, a_bit: 8, is_sparse: False, kv_cache: False}}
spec:
  process:
    - type: "quarot"
      block_size: {block}
  dataset: mix_calib.jsonl
  save:
    - type: "ascendv1_saver"
      part_file_size: 4
"""


def export(model: Path, kind: str, block: int, folder: Path) -> dict[str, str]:
    """Rotate ``model`` with the tool; return name and shortened digest of every tensor."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(block=block))
    output = folder / "out"
    command = [sys.executable, "-m", "msmodelslim.cli", "quant", "--model_type", kind]
    command += ["--model_path", str(model), "--save_path", str(output), "--device", "cpu"]
    subprocess.run([*command, "--config_path", str(recipe)], check=True)
    digests: dict[str, str] = {}
    for path in sorted(output.glob("*.safetensors")):
        for name, value in load_file(path).items():
            data = value.contiguous().view(torch.uint8).numpy().tobytes()
            digests[name] = hashlib.sha256(data).hexdigest()[:16]
    return digests


def main() -> None:
    """Write the file."""
    exports: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        mixture = write_tiny_mixture(TARGET, root / "mixture")
        cases = {
            "target": (TARGET, "Qwen3-8B", -1),
            "target, blocks of 32": (TARGET, "Qwen3-8B", 32),
            "mixture": (mixture, "Qwen3-30B", -1),
        }
        for number, (case, arguments) in enumerate(cases.items()):
            folder = root / str(number)
            folder.mkdir()
            exports[case] = export(*arguments, folder)
    document = {
        "msmodelslim": version("msmodelslim"),
        "torch": torch.__version__,
        "command": "python tools/msmodelslim_rotations/make_exports.py",
        "sha256": exports,
    }
    output = FIXTURES / "msmodelslim_rotations" / "exports.json"
    output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
