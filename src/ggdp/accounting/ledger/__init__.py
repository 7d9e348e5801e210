# SPDX-License-Identifier: Apache-2.0
"""The ledger: what has been released on one dataset, what it cost, and what still fits a budget."""
