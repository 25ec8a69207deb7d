# SPDX-License-Identifier: Apache-2.0
"""The command ``eagle3-quarot``, also as ``python -m vllm_eagle3_quarot``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what this environment lacks for it."""
    try:
        from vllm_eagle3_quarot.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        sys.exit(
            "eagle3-quarot: this environment has no torch, which every command needs. The package "
            "does not bring it, so that pip never replaces a host's build: install the package "
            "where vLLM is, or install torch here (pip install torch)"
        )
    run()


if __name__ == "__main__":
    main()
