# SPDX-License-Identifier: Apache-2.0
"""A small target and its draft run in plain PyTorch, to see in which basis the draft is at home."""
