# SPDX-License-Identifier: Apache-2.0
"""A tiny mixture-of-experts target in float, and as the real msModelSlim quantises it."""
