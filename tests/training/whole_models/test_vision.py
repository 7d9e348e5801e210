# SPDX-License-Identifier: Apache-2.0
"""Small models of timm and torchvision, randomly initialised, are clipped right, or refused."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import training.whole_models.compiled_operators  # isort: skip  # noqa: F401
import timm  # isort: skip
import torchvision.models as tv  # isort: skip
from timm import layers as timm_layers  # isort: skip
from timm.models import (  # isort: skip
    convmixer,
    convnext,
    densenet,
    mlp_mixer,
    nfnet,
    resnet,
    swin_transformer,
    vision_transformer,
)
from timm.models._efficientnet_builder import decode_arch_def  # isort: skip
from timm.models.efficientnet import EfficientNet  # isort: skip

from training.whole_models.harness import Batch, Case, check

N = 3
CASES: list[Case] = []


def _images(size: int = 32) -> Batch:
    return torch.randn(N, 3, size, size), torch.randint(0, 3, (N,))


def _classes(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


def _row(
    name: str, model: Callable[[], nn.Module], expected: str = "right", size: int = 32, **more: Any
) -> None:
    CASES.append(Case(name, model, partial(_images, size), _classes, expected, num_examples=N, **more))


# timm

_VIT = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "depth": 2, "num_heads": 2, "num_classes": 3}
_row("timm vit", lambda: vision_transformer.VisionTransformer(**_VIT), size=16)
_row(
    "timm vit, layer scale, drop path, dropout",
    lambda: vision_transformer.VisionTransformer(
        **_VIT,
        init_values=1e-5,
        drop_path_rate=0.3,
        proj_drop_rate=0.2,
        attn_drop_rate=0.2,
        pos_drop_rate=0.2,
    ),
    size=16,
)
_row(
    "timm vit, q and k normalised, average pool",
    lambda: vision_transformer.VisionTransformer(**_VIT, qk_norm=True, class_token=False, global_pool="avg"),
    size=16,
)
_row(
    "timm vit, attention pool, registers",
    lambda: vision_transformer.VisionTransformer(**_VIT, reg_tokens=2, global_pool="map"),
    size=16,
)
_row(
    "timm vit, patch drop",
    lambda: vision_transformer.VisionTransformer(**_VIT, patch_drop_rate=0.5),
    "either",
    size=16,
)
_CONVNEXT = {"depths": (1, 1, 1, 1), "dims": (4, 4, 8, 8), "num_classes": 3}
_row(
    "timm convnext, layer scale, drop path",
    lambda: convnext.ConvNeXt(**_CONVNEXT, ls_init_value=1e-6, drop_path_rate=0.3),
)
_row(
    "timm convnext v2 (global response norm)",
    lambda: convnext.ConvNeXt(**_CONVNEXT, use_grn=True, ls_init_value=None),
)
_row(
    "timm swin",
    lambda: swin_transformer.SwinTransformer(
        img_size=16,
        patch_size=4,
        window_size=2,
        embed_dim=4,
        depths=(2,),
        num_heads=(2,),
        num_classes=3,
        drop_path_rate=0.2,
    ),
    "either",
    size=16,
)
_row(
    "timm mixer, dropout, drop path",
    lambda: mlp_mixer.MlpMixer(
        3, 16, 3, 8, num_blocks=2, embed_dim=8, proj_drop_rate=0.2, drop_path_rate=0.3
    ),
    size=16,
)
_row(
    "timm resmlp (own scales), drop path",
    lambda: mlp_mixer.MlpMixer(
        3,
        16,
        3,
        8,
        2,
        8,
        4.0,
        block_layer=partial(mlp_mixer.ResBlock, init_values=1e-4),
        norm_layer=mlp_mixer.Affine,
        drop_path_rate=0.3,
    ),
    size=16,
)


def _nf_resnet(**more: Any) -> nn.Module:
    settings = nfnet.NfCfg(depths=(1, 1), channels=(8, 16), stem_chs=8, bottle_ratio=1.0, **more)
    return nfnet.NormFreeNet(settings, num_classes=3, drop_path_rate=0.2)


_row("timm nf_resnet (scaled weights)", _nf_resnet)
_row(
    "timm nfnet with skipinit and eca",
    lambda: _nf_resnet(skipinit=True, attn_layer="eca", attn_kwargs={}, gamma_in_act=True),
)
_groups = partial(timm_layers.GroupNormAct, num_groups=2)
_plain_groups = partial(timm_layers.GroupNorm, num_groups=2)
_row(
    "timm mobilenetv3, group norm, dropout",
    lambda: _without_batch_norm(timm.create_model("mobilenetv3_small_050", num_classes=3, drop_rate=0.2)),
)


def _efficientnet() -> nn.Module:
    blocks = decode_arch_def([["ds_r1_k3_s1_e1_c8"], ["ir_r2_k3_s2_e2_c8_se0.25"]])
    return EfficientNet(blocks, 3, num_features=16, stem_size=8, norm_layer=_groups, drop_path_rate=0.3)


_row("timm efficientnet, group norm, drop path", _efficientnet)


def _resnet(**more: Any) -> nn.Module:
    return resnet.ResNet(
        resnet.BasicBlock, (1, 1, 1, 1), channels=(8, 8, 8, 8), stem_width=8, num_classes=3, **more
    )


_row("timm resnet, group norm", lambda: _resnet(norm_layer=_plain_groups))
_row("timm resnet, batch norm", lambda: _resnet(), "refused")
_row(
    "timm resnet, evonorm of the batch",
    lambda: _resnet(norm_layer=timm_layers.EvoNorm2dB0),
    "refused",
    size=64,
)
_row(
    "timm resnet, evonorm of the example",
    lambda: _resnet(norm_layer=partial(timm_layers.EvoNorm2dS0, groups=2)),
    "either",
    tolerance=1e-6,
)
_row(
    "timm resnet, filter response norm",
    lambda: _resnet(norm_layer=timm_layers.FilterResponseNormTlu2d),
    "either",
    size=64,
    tolerance=1e-5,
)
_row(
    "timm densenet, group norm",
    lambda: densenet.DenseNet(growth_rate=4, block_config=(1, 1), num_classes=3, norm_layer=_groups),
)
_row(
    "timm densenet, group norm, checkpointed",
    lambda: densenet.DenseNet(
        growth_rate=4, block_config=(2, 1), num_classes=3, norm_layer=_groups, memory_efficient=True
    ),
    "either",
)
_row(
    "timm convmixer, group norm",
    lambda: _without_batch_norm(convmixer.ConvMixer(8, 2, kernel_size=3, patch_size=8, num_classes=3)),
)
_row(
    "timm resnet, group norm, squeeze and excitation",
    lambda: _resnet(norm_layer=_plain_groups, block_args={"attn_layer": "se"}),
)
_row(
    "timm cait (talking heads, class attention)",
    lambda: timm.create_model(
        "cait_xxs24_224", img_size=16, patch_size=8, embed_dim=8, depth=1, num_heads=2, num_classes=3
    ),
    size=16,
)
_row(
    "timm beit (relative positions)",
    lambda: timm.create_model(
        "beit_base_patch16_224", img_size=16, patch_size=8, embed_dim=8, depth=1, num_heads=2, num_classes=3
    ),
    "either",
    size=16,
)


# torchvision


def _without_batch_norm(model: nn.Module) -> nn.Module:
    """The model with group norm of two groups in place of batch norm."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                norm = _norm(child.num_features)
                is_active = isinstance(child, timm_layers.BatchNormAct2d)
                setattr(module, name, nn.Sequential(norm, child.act) if is_active else norm)
    return model


def _norm(channels: int) -> nn.Module:
    return nn.GroupNorm(2 if channels % 2 == 0 else 1, channels)


def _tv_mobilenet(**more: Any) -> nn.Module:
    from torchvision.models.mobilenetv2 import MobileNetV2

    settings = [[1, 8, 1, 1], [3, 8, 2, 2]]
    return MobileNetV2(3, width_mult=0.25, inverted_residual_setting=settings, round_nearest=2, **more)


_row("torchvision mobilenet_v2, group norm", lambda: _tv_mobilenet(norm_layer=_norm))
_row("torchvision mobilenet_v2, batch norm", lambda: _tv_mobilenet(), "refused")


def _tv_vit(dropout: float) -> nn.Module:
    model = tv.VisionTransformer(
        image_size=16,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=12,
        num_classes=3,
        dropout=dropout,
        attention_dropout=dropout,
    )
    nn.init.normal_(model.heads.head.weight)  # zero at first, which would hide all other gradients
    return model


def _tv_vit_zero(dropout: float) -> nn.Module:
    return tv.VisionTransformer(
        image_size=16,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=12,
        num_classes=3,
        dropout=dropout,
        attention_dropout=dropout,
    )


for _dropout in (0.0, 0.1):
    _row(f"torchvision vit, dropout {_dropout}", partial(_tv_vit, _dropout), size=16)
    _row(f"torchvision vit, dropout {_dropout}, zero head", partial(_tv_vit_zero, _dropout), size=16)
_row(
    "torchvision swin",
    lambda: tv.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=8,
        depths=[2, 1],
        num_heads=[2, 2],
        window_size=[2, 2],
        dropout=0.1,
        stochastic_depth_prob=0.2,
        num_classes=3,
    ),
    "either",
    size=16,
)


def _tv_convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt(
        [CNBlockConfig(4, 8, 1), CNBlockConfig(8, None, 2)], stochastic_depth_prob=0.3, num_classes=3
    )


_row("torchvision convnext, layer scale, stochastic depth", _tv_convnext)


def _tv_resnet() -> nn.Module:
    from torchvision.models.resnet import BasicBlock, ResNet

    model = ResNet(BasicBlock, [1, 1, 1, 1], norm_layer=_norm, num_classes=3)
    model.layer3 = nn.Identity()
    model.layer4 = nn.Identity()
    model.fc = nn.Linear(128, 3)
    return model


_row("torchvision resnet, group norm", _tv_resnet)


def _tv_squeezenet() -> nn.Module:
    from torchvision.models.squeezenet import Fire

    model = tv.SqueezeNet("1_1", num_classes=3, dropout=0.3)
    model.features = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        Fire(8, 4, 8, 8),
        Fire(16, 4, 8, 8),
    )
    model.classifier[1] = nn.Conv2d(16, 3, 1)
    return model


_row("torchvision squeezenet, dropout", _tv_squeezenet)
_row(
    "torchvision densenet, group norm, dropout",
    lambda: _without_batch_norm(tv.DenseNet(4, (2, 1), num_init_features=8, drop_rate=0.2, num_classes=3)),
)
_row(
    "torchvision densenet, group norm, checkpointed",
    lambda: _without_batch_norm(
        tv.DenseNet(4, (2, 1), num_init_features=8, num_classes=3, memory_efficient=True)
    ),
    "either",
)


def _tv_efficientnet() -> nn.Module:
    from torchvision.models.efficientnet import MBConvConfig

    settings = [MBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(4, 3, 2, 8, 16, 2)]
    return tv.EfficientNet(
        settings, 0.2, stochastic_depth_prob=0.3, num_classes=3, norm_layer=_norm, last_channel=16
    )


def _tv_regnet() -> nn.Module:
    from torchvision.models.regnet import BlockParams

    settings = BlockParams([1, 1], [8, 16], [4, 4], [1.0, 1.0], [2, 2], se_ratio=0.25)
    return tv.RegNet(settings, num_classes=3, stem_width=8, norm_layer=_norm)


_row("torchvision efficientnet, group norm, stochastic depth", _tv_efficientnet)
_row("torchvision regnet, group norm, squeeze and excitation", _tv_regnet)
_row(
    "torchvision shufflenet, group norm",
    lambda: _without_batch_norm(tv.ShuffleNetV2([1, 1, 1], [8, 8, 16, 16, 16], num_classes=3)),
)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_clipped_sum_is_that_of_single_examples_or_the_model_is_refused(case: Case, device: str) -> None:
    check(replace(case, device=device))
