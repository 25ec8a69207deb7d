# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a target and a draft, from their files alone: findings and one verdict."""
