# SPDX-License-Identifier: Apache-2.0
"""In the place of CANN's Python module, which vllm-ascend imports one name of."""
