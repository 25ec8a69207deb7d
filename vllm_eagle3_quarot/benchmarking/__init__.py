# SPDX-License-Identifier: Apache-2.0
"""Served speed and acceptance of pairs, measured by ``vllm bench serve`` and /metrics."""
