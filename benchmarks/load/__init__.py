# SPDX-License-Identifier: Apache-2.0
"""What the correction of a draft costs while it is loaded: ``python -m benchmarks.load``."""
