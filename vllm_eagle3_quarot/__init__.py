# SPDX-License-Identifier: Apache-2.0
"""Eagle3 speculative decoding for QuaRot-rotated targets.

Convention, used everywhere in this package: activations are row vectors. A rotated target carries
``h' = h @ Q`` in its residual stream, so ``h = h' @ Q.T``; a weight that reads the stream is folded
as ``W' = W @ Q``. ``Q`` is the orthogonal ``[H, H]`` matrix that the quantiser chose and ``H`` the
target's hidden size.

Importing this package is free of torch and vLLM; both are imported by the parts that need them.
"""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
