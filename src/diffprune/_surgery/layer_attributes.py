"""The widths layers report about themselves. Knows torch's layers, not plans.

`repr(layer)` and user code read `out_features` and its like; torch's own arithmetic
reads the tensors. After a cut the former have to be told what the latter are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from torch import nn

Widths = Mapping[str, int]


def _linear(layer: nn.Linear) -> Widths:
    outputs, inputs = layer.weight.shape
    return {"out_features": outputs, "in_features": inputs}


def _conv(layer: nn.Conv2d) -> Widths:
    outputs, inputs_per_group = layer.weight.shape[:2]
    return {"out_channels": outputs, "in_channels": inputs_per_group * layer.groups}


def _transposed_conv(layer: nn.ConvTranspose2d) -> Widths:
    inputs, outputs_per_group = layer.weight.shape[:2]
    return {"in_channels": inputs, "out_channels": outputs_per_group * layer.groups}


def _norm(layer: nn.BatchNorm2d) -> Widths:
    vector = layer.running_mean if layer.track_running_stats else layer.weight
    return {} if vector is None else {"num_features": len(vector)}


def _group_norm(layer: nn.GroupNorm) -> Widths:
    return {"num_channels": len(layer.weight)} if layer.affine else {}


def _embedding(layer: nn.Embedding) -> Widths:
    rows, width = layer.weight.shape
    return {"num_embeddings": rows, "embedding_dim": width}


def _prelu(layer: nn.PReLU) -> Widths:
    return {"num_parameters": len(layer.weight)}


def _bilinear(layer: nn.Bilinear) -> Widths:
    outputs, first, second = layer.weight.shape
    return {"out_features": outputs, "in1_features": first, "in2_features": second}


def _recurrent(layer: nn.RNNBase) -> Widths:
    rows, inputs = layer.get_parameter("weight_ih_l0").shape
    gates = {"LSTM": 4, "GRU": 3}.get(layer.mode, 1)
    return {"input_size": inputs, "hidden_size": rows // gates}


_Kinds: TypeAlias = type[nn.Module] | tuple[type[nn.Module], ...]
_WIDTHS: Sequence[tuple[_Kinds, Callable[[Any], Widths]]] = (
    (nn.Linear, _linear),
    ((nn.Conv1d, nn.Conv2d, nn.Conv3d), _conv),
    ((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _transposed_conv),
    ((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm), _norm),
    ((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), _norm),
    (nn.GroupNorm, _group_norm),
    ((nn.Embedding, nn.EmbeddingBag), _embedding),
    (nn.PReLU, _prelu),
    (nn.Bilinear, _bilinear),
    (nn.RNNBase, _recurrent),
)


def refresh_attributes_(layer: nn.Module) -> None:
    """Make the widths a layer reports about itself those of its tensors.

    Examples:
        >>> layer = nn.Linear(3, 5)
        >>> layer.weight = nn.Parameter(layer.weight[:4])
        >>> refresh_attributes_(layer)
        >>> layer
        Linear(in_features=3, out_features=4, bias=True)
    """
    for kinds, widths in _WIDTHS:
        if isinstance(layer, kinds):
            vars(layer).update(widths(layer))
