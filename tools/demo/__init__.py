# SPDX-License-Identifier: Apache-2.0
"""`make demo`: the reference pair served by the real vLLM, in one table."""
