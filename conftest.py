# SPDX-License-Identifier: Apache-2.0
"""Doctests are collected from the rooms whose optional dependencies are installed."""

import importlib.util

_NEEDS = {
    "src/ggdp/torch": "torch",
    "src/ggdp/torch/kernels.py": "triton",
    "src/ggdp/jax": "jax",
    "src/ggdp/accounting/dp_events.py": "dp_accounting",
}

collect_ignore = [path for path, package in _NEEDS.items() if importlib.util.find_spec(package) is None]
