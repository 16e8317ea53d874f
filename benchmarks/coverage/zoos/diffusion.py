"""The UNets of diffusers, with tiny random configurations."""

import functools
from collections.abc import Iterator

import torch
from diffusers import UNet2DConditionModel, UNet2DModel

from benchmarks.coverage.case import Case, Inputs

CHANNELS = (16, 32)


def cases() -> Iterator[Case]:
    """An unconditional UNet and one that attends to a text."""
    unconditional = functools.partial(
        UNet2DModel,
        sample_size=16,
        block_out_channels=CHANNELS,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=8,
    )
    conditional = functools.partial(
        UNet2DConditionModel,
        sample_size=16,
        block_out_channels=CHANNELS,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=4,
        cross_attention_dim=24,
    )
    yield Case("diffusers", "unet2d", unconditional, noisy_image)
    yield Case("diffusers", "unet2d_condition", conditional, noisy_latent_and_text)


def noisy_image() -> Inputs:
    """Two noisy images and their time steps."""
    return _normal(2, 3, 16, 16), torch.tensor([1, 7])


def noisy_latent_and_text() -> Inputs:
    """Two noisy latents, their time steps and an encoded text for each."""
    return _normal(2, 4, 16, 16), torch.tensor([1, 7]), _normal(2, 5, 24)


def _normal(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator, dtype=torch.float64)
