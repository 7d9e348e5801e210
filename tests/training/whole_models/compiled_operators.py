# SPDX-License-Identifier: Apache-2.0
"""Import this before torchvision, timm or transformers, which may stand beside a PyTorch of another build.

The compiled operators of a torchvision built for CUDA do not load beside a PyTorch for the CPU. Its import
then fails because two of them (nms and qnms, for object detection) are unknown. The models in these tests use
neither, and it is enough that their names are known.
"""

import importlib.util
from pathlib import Path

import torch


def _known() -> bool:
    """Whether the operators load, or this file has been read before."""
    if hasattr(torch.ops.torchvision, "nms"):
        return True
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return True
    try:
        for file in sorted(Path(found.origin).parent.glob("_C*.so")):
            torch.ops.load_library(str(file))
    except OSError:
        return False
    return True


if not _known():
    NAMES = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        NAMES.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
