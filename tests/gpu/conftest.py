# SPDX-License-Identifier: Apache-2.0
"""These tests need a CUDA device, or TRITON_INTERPRET=1, which runs the kernels' logic on the CPU.

python -m pytest tests/gpu -m "gpu or cuda" --confcutdir=tests/gpu
"""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.fixture(scope="session")
def device():
    import torch

    return torch.device("cpu" if INTERPRETED else "cuda")


@pytest.fixture(scope="session")
def num_elements():
    """Enough for hundreds of elements of the fine tail on a device; a few programs when interpreted."""
    return 5_003 if INTERPRETED else (1 << 22) + 3
