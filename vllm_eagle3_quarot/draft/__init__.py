# SPDX-License-Identifier: Apache-2.0
"""What a draft needs on a given target: decided from files and settings, without an engine."""
