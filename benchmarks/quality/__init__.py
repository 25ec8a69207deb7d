# SPDX-License-Identifier: Apache-2.0
"""Where each correction is right: ``python -m benchmarks.quality``."""
