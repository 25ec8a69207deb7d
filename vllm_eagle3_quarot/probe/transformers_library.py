# SPDX-License-Identifier: Apache-2.0
"""transformers comes with every vLLM; it is imported only when a probe is asked for."""

from __future__ import annotations

from typing import Any

from vllm_eagle3_quarot.errors import ProbeError


def imported_transformers() -> Any:
    """The library, with its warnings and progress bars off.

    Raises:
        ProbeError: it is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise ProbeError(
            f"the probe needs transformers, which comes with vLLM ({error}); install it with: pip "
            "install 'vllm-eagle3-quarot[probe]'"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers
