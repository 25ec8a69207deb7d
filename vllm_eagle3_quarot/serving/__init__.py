# SPDX-License-Identifier: Apache-2.0
"""Start the real ``vllm serve``, wait until it answers, stop all of it. vLLM is not imported."""
