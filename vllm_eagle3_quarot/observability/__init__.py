# SPDX-License-Identifier: Apache-2.0
"""What a running server tells about speculation, read from its /metrics. vLLM is not imported."""
