# SPDX-License-Identifier: Apache-2.0
"""Small targets rotated by the released tools, as fixtures of tests."""
