# SPDX-License-Identifier: Apache-2.0
"""Builds the small target and draft that demo and tests serve."""
