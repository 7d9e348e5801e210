# SPDX-License-Identifier: Apache-2.0
"""Tests and doctests are collected from the rooms whose optional dependencies are installed."""

import importlib.util

_NEEDS = {
    "src/ggdp/torch": "torch",
    "src/ggdp/training": "torch",
    "src/ggdp/opacus.py": "opacus",
    "src/ggdp/training/opacus": "opacus",
    "src/ggdp/distributions/pytorch": "torch",
    "tests/training": "torch",
    "src/ggdp_paper/tasks": "torch",
    "src/ggdp_paper/task_run.py": "torch",
    "tests/paper": "joblib",
    "tests/paper/test_dask.py": "distributed",
    "tests/paper/test_ray.py": "ray",
    "tests/paper/test_training_figures.py": "torch",
    "tests/paper/test_cifar_table.py": "torch",
    "tests/paper/test_table_privacy.py": "dp_accounting",
    "tests/paper/test_task_run.py": "torch",
    "tests/paper/tasks": "torch",
    "tests/paper/cli/test_audit.py": "torch",
    "tests/paper/cli/test_train.py": "torch",
    "tests/training/opacus": "opacus",
    "tests/training/whole_models/test_transformers.py": "transformers",
    "tests/training/whole_models/test_vision.py": "timm",
    "tests/training/whole_models/test_adapters.py": "peft",
    "src/ggdp/distributions/pytorch/kernels.py": "triton",
    "src/ggdp/jax": "jax",
    "tests/ggdp_jax": "jax",
    "tests/distributions/pytorch": "torch",
    "tests/gpu": "triton",
    "src/ggdp/accounting/dp_events.py": "dp_accounting",
    "src/ggdp/dp_accounting.py": "dp_accounting",
    "tests/accounting/test_dp_events.py": "dp_accounting",
    "tests/test_dp_accounting.py": "dp_accounting",
    "tests/test_prv_beside_the_original.py": "prv_accountant",
    "tests/selection/test_pate.py": "sklearn",
}

collect_ignore = [path for path, package in _NEEDS.items() if importlib.util.find_spec(package) is None]
