# SPDX-License-Identifier: Apache-2.0
"""``python -m vllm_eagle3_quarot``, the same as the command ``eagle3-quarot``."""

from __future__ import annotations

from vllm_eagle3_quarot.cli.app import main

if __name__ == "__main__":
    main()
