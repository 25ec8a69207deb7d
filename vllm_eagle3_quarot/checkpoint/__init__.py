# SPDX-License-Identifier: Apache-2.0
"""What is on disk: configuration files, tensor index, target facts. Knows nothing of vLLM."""
