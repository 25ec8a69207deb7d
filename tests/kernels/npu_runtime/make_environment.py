# SPDX-License-Identifier: Apache-2.0
"""Makes an environment that has torch_npu, out of the one this interpreter runs in.

``python -m tests.kernels.npu_runtime.make_environment FOLDER [REQUIREMENTS]``: FOLDER becomes a
virtual environment that sees this one's packages (torch, vLLM, pytest, this project) and adds what
REQUIREMENTS names, ``requirements/npu-runtime.txt`` by default. This one is left as it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tools.layered_environment import make_layered_environment

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = ROOT / "requirements" / "npu-runtime.txt"


def main() -> int:
    parser = argparse.ArgumentParser(description="make the environment that has torch_npu")
    parser.add_argument("folder", type=Path)
    parser.add_argument("requirements", type=Path, nargs="?", default=REQUIREMENTS)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    site_packages = make_layered_environment(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install = [*pip, "install", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, "-r", str(arguments.requirements)], check=True)

    (torch_npu,) = metadata.distributions(name="torch_npu", path=[str(site_packages)])
    torch = metadata.version("torch").partition("+")[0]
    if not f"{torch_npu.version}.".startswith(f"{torch}."):
        print(
            f"error: torch_npu {torch_npu.version} is not made for this environment's torch "
            f"{torch}; put the release for it into {arguments.requirements}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
