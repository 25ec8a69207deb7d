# SPDX-License-Identifier: Apache-2.0
"""Builders shared by tests: rotations and small checkpoints with known answers."""
