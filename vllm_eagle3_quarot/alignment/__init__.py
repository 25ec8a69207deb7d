# SPDX-License-Identifier: Apache-2.0
"""Offline: a draft that works on a rotated target in an engine without this plugin."""
