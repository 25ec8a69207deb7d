# SPDX-License-Identifier: Apache-2.0
"""The served reference pair on every release of vLLM that the plugin promises to work with."""
