# SPDX-License-Identifier: Apache-2.0
"""One operator of the *installed* package on an emulated NPU; run by ``test_dockerfile.py``.

The checkout comes last on the path, so that ``vllm_eagle3_quarot`` is the installed one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.kernels.ascendc.harness import reference
from tests.kernels.ascendc.harness.cases import exact_slices, gaussian, rotation_for
from tests.kernels.npu_runtime.fake_cann import libraries
from tests.kernels.npu_runtime.fake_cann.activate import activate
from tests.kernels.npu_runtime.on_npu.launches import Launches
from tests.kernels.npu_runtime.on_npu.tensors import on_npu, plan_on_npu, stored

#: 12 x 256, three hidden states of five tokens.
STRUCTURE, TOKENS, SLICES = (3072, 3072, 12), 5, 3


def main(scratch: str) -> None:
    """Print the back end and the file that brought it.

    Raises:
        AssertionError: the kernel did not run, or its values are wrong.
    """
    libraries.build(Path(scratch))
    activate(Path(scratch))
    import torch
    import torch_npu  # noqa: F401

    from vllm_eagle3_quarot import ops

    backend = ops.load_ascend()
    assert backend.kernel == "AscendC", backend
    launches = Launches(Path(backend.detail).with_name("libeagle3_quarot_ascend_kernels.so"))
    rotation = rotation_for(STRUCTURE)
    x = gaussian(np.random.default_rng(3), (TOKENS, SLICES * rotation.hidden))
    bits = on_npu(reference.encode(x, "bf16"))
    made = launches.during(lambda: torch.ops.eagle3_quarot.unrotate(bits, *plan_on_npu(rotation)))
    assert made.count == 1
    exact = exact_slices(rotation, x, "bf16")
    reference.accept(stored(made.result).reshape(exact.shape), exact, "bf16")
    print(backend)
