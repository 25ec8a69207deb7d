# SPDX-License-Identifier: Apache-2.0
"""What developing and showing the plugin needs; not part of the installed package."""
