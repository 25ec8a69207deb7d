# SPDX-License-Identifier: Apache-2.0
"""The command ``eagle3-quarot``: arguments and output. The work is done in the other rooms."""
