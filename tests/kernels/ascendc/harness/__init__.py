# SPDX-License-Identifier: Apache-2.0
"""Builds, launches and judges the emulated kernels; no tests in here."""
