# SPDX-License-Identifier: Apache-2.0
"""The only rooms that import vLLM or vllm-ascend."""
