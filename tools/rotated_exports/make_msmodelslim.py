# SPDX-License-Identifier: Apache-2.0
"""Rotate a small model with msModelSlim 8.2.1, which exports no rotation; see README.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from tools.rotated_exports.float_model import TOKENIZER, write_fixture, write_float_model

COMMAND = "python -m tools.rotated_exports.make_msmodelslim"

#: As many words as the tokenizer of the reference pair has.
HIDDEN, VOCABULARY = 96, 2048

RECIPE = """\
apiversion: modelslim_v1
metadata:
  config_id: quarot_float
  score: 90
  label: {w_bit: 8, a_bit: 8, is_sparse: False, kv_cache: False}
spec:
  process:
    - type: "quarot"
  dataset: mix_calib.jsonl
  save:
    - type: "ascendv1_saver"
      part_file_size: 4
"""


def main() -> None:
    """Write the fixture, and the model that it was made from."""
    with tempfile.TemporaryDirectory() as name:
        source = write_float_model(Path(name, "float"), HIDDEN, VOCABULARY)
        write_fixture(source, "float-96-2048", {"command": COMMAND})
        for path in TOKENIZER.iterdir():
            if path.name not in ("config.json", "model.safetensors"):
                shutil.copy(path, source)
        recipe, output = Path(name, "recipe.yaml"), Path(name, "out")
        recipe.write_text(RECIPE)
        command = [sys.executable, "-m", "msmodelslim.cli", "quant", "--model_type", "Qwen3-8B"]
        command += ["--model_path", str(source), "--save_path", str(output), "--device", "cpu"]
        subprocess.run([*command, "--config_path", str(recipe)], check=True)
        provenance = {"command": COMMAND, "msmodelslim": version("msmodelslim")}
        write_fixture(output, "msmodelslim-8.2.1", provenance)


if __name__ == "__main__":
    main()
