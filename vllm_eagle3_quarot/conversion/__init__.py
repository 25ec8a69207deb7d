# SPDX-License-Identifier: Apache-2.0
"""A float checkpoint, rotated as msModelSlim rotates it, in its layout."""
