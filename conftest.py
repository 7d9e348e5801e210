# SPDX-License-Identifier: Apache-2.0
"""Tests and doctests are collected from the rooms whose optional dependencies are installed."""

import importlib.util

_NEEDS = {
    "src/ggdp/torch": "torch",
    "src/ggdp/torch/kernels.py": "triton",
    "src/ggdp/jax": "jax",
    "tests/ggdp_jax": "jax",
    "tests/ggdp_torch": "torch",
    "tests/gpu": "triton",
    "src/ggdp/accounting/dp_events.py": "dp_accounting",
    "tests/selection/test_pate.py": "sklearn",
}

collect_ignore = [path for path, package in _NEEDS.items() if importlib.util.find_spec(package) is None]
