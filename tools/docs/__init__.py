# SPDX-License-Identifier: Apache-2.0
"""What of the documentation is made from the code."""
