# SPDX-License-Identifier: Apache-2.0
"""Finding ``Q`` of a target that does not bring it, from a table before and after rotating."""
