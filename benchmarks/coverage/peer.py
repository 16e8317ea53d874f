"""Cuts a model with Torch-Pruning, following the recipes of its own examples.

Those examples differ in three things only: which layers they ignore (the classifier,
and the output projection inside `nn.MultiheadAttention`), which layers they declare as
attention projections, and which attributes they refresh afterwards. All three are found
here by the names those examples rely on; a model without an example gets the same.
"""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import torch
import torch_pruning as tp
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.utils import _pytree as pytree

from benchmarks.coverage.case import Inputs
from benchmarks.coverage.verdict import Cut

NAME = "Torch-Pruning"
VERSION = version("torch-pruning")
PROJECTIONS = (
    ("qkv",),
    ("qkv_proj",),
    ("query", "key", "value"),
    ("q_proj", "k_proj", "v_proj"),
    ("to_q", "to_k", "to_v"),
    ("q", "k", "v"),
)
HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "heads")
HEAD_WIDTHS = ("head_dim", "attention_head_size", "key_value_proj_dim")
WIDTHS = ("all_head_size", "inner_dim", "attn_dim", "embed_dim")
# Rotary embeddings fix the width of a head, so their example removes whole heads.
ROTARY = ("llama", "qwen2", "qwen3", "mixtral")


def cut(model: nn.Module, inputs: Inputs, ratio: float) -> Cut:
    """Remove a random share of every group that Torch-Pruning finds."""
    pruner = tp.pruner.BasePruner(
        model,
        inputs,
        importance=tp.importance.RandomImportance(),
        pruning_ratio=ratio,
        ignored_layers=list(ignored_layers(model, inputs)),
        num_heads=dict(attention_heads(model)),
        # Fresh dictionaries: the defaults are shared between pruners and filled.
        in_channel_groups={},
        out_channel_groups={},
        forward_fn=lambda module, args: module(*args),
        output_transform=_floating,
        **_family_options(model, ratio),
    )
    groups = 0
    for group in pruner.step(interactive=True):
        group.prune()
        groups += 1
    refresh_attributes_(model, pruner.num_heads)
    return Cut(model, groups)


def ignored_layers(model: nn.Module, inputs: Inputs) -> Iterator[nn.Module]:
    """Layers as wide as the output, and the projection hidden in torch's attention."""
    with torch.no_grad():
        outputs = _floating(model(*inputs))
    classes = {x.shape[1 if x.ndim == 4 else -1] for x in outputs}
    for layer in model.modules():
        is_wide = isinstance(layer, nn.Linear | nn.Conv2d)
        is_output = is_wide and layer.weight.shape[0] in classes
        if is_output or isinstance(layer, NonDynamicallyQuantizableLinear):
            yield layer


def attention_heads(model: nn.Module) -> Iterator[tuple[nn.Linear, int]]:
    """The query, key and value layers of every attention block, with their heads."""
    for block in model.modules():
        projections, heads = _projections(block), _head_count(block)
        for layer in projections:
            # Grouped queries: keys and values have fewer heads of the same width.
            share = layer.out_features / projections[0].out_features
            yield layer, max(1, round(heads * share))


def refresh_attributes_(model: nn.Module, heads: dict[nn.Module, int]) -> None:
    """Repeat in the blocks what their narrower layers now imply."""
    for block in model.modules():
        projections = _projections(block)
        if projections and projections[0] in heads:
            fused = 3 if len(projections) == 1 else 1
            width = projections[0].out_features // fused
            _refresh_attention_(block, heads[projections[0]], width)
        children = dict(block.named_children())
        if "hidden_dim" in vars(block) and "conv_proj" in children:
            block.hidden_dim = children["conv_proj"].out_channels
        if "channels" in vars(block) and isinstance(children.get("conv"), nn.Conv2d):
            block.channels = children["conv"].in_channels


def _refresh_attention_(block: nn.Module, heads: int, width: int) -> None:
    values = dict.fromkeys(HEAD_COUNTS, heads)
    values |= dict.fromkeys(HEAD_WIDTHS, width // heads)
    values |= dict.fromkeys(WIDTHS, width)
    for name in values.keys() & vars(block).keys():
        setattr(block, name, values[name])


def _family_options(model: nn.Module, ratio: float) -> dict[str, Any]:
    if getattr(vars(model).get("config"), "model_type", None) in ROTARY:
        whole_heads = {"prune_num_heads": True, "prune_head_dims": False}
        return whole_heads | {"head_pruning_ratio": ratio, "round_to": 4}
    heads = {
        m.num_heads for m in model.modules() if isinstance(m, nn.MultiheadAttention)
    }
    return {"round_to": heads.pop()} if heads else {}


def _projections(block: nn.Module) -> list[nn.Linear]:
    children = dict(block.named_children())
    for names in PROJECTIONS:
        layers = [children.get(name) for name in names]
        if _head_count(block) and all(isinstance(x, nn.Linear) for x in layers):
            return layers
    return []


def _head_count(block: nn.Module) -> int:
    attributes = vars(block)
    config = attributes.get("config")
    own = (attributes[name] for name in HEAD_COUNTS if name in attributes)
    return next(own, 0 if config is None else getattr(config, HEAD_COUNTS[1], 0))


def _floating(output: object) -> list[Tensor]:
    return [x for x in pytree.tree_leaves(output) if torch.is_floating_point(x)]
