"""Costs that count: parameters, multiply-adds, bytes."""

import json
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from diffprune._costs.network import Network, makes_tensors
from diffprune._costs.polynomial import Polynomial, polynomial


def parameters(network: Network) -> Polynomial:
    """Number of parameters; a tied one counts once."""
    tensors = network.groups.solution.parameters()
    return polynomial(((axes, 1) for axes in tensors), network.atoms)


def macs(network: Network) -> Polynomial:
    """Multiply-adds of linear maps, convolutions and attention, for the inputs."""
    products = network.groups.products
    return polynomial(((axes, 1) for axes, _ in products), network.atoms)


def memory(network: Network) -> Polynomial:
    """Bytes of all tensors that a forward pass makes, as a backward pass needs them."""
    made = [
        (network.groups.solution.axes(value), tensor.element_size())
        for step in network.steps()
        if makes_tensors(step)
        for value, tensor in zip(
            step.outputs, pytree.tree_leaves(step.node.meta["val"]), strict=True
        )
    ]
    return polynomial(made, network.atoms)


def file_size(network: Network) -> Polynomial:
    """Bytes of the model's `state_dict` as a safetensors file; tied tensors once."""
    solution = network.groups.solution
    stored = {
        solution.tensors[name]: (name, tensor)
        for name, tensor in reversed(network.model.state_dict().items())
        if name in solution.tensors
    }
    sizes = [
        (solution.axes(value), tensor.element_size())
        for value, (_, tensor) in stored.items()
    ]
    # The header writes out shapes: a few digits fewer once the model is smaller.
    header = header_bytes(dict(stored.values()))
    return polynomial(sizes, network.atoms, constant=header)


# In the order in which files store them.
_CODES: Final[Mapping[torch.dtype, str]] = {
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float32: "F32",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def header_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Length of a safetensors header: a number of eight bytes, then padded JSON.

    Examples:
        >>> from safetensors.torch import save
        >>> tensors = {"weight": torch.ones(3, 5), "bias": torch.ones(3)}
        >>> len(save(tensors)) - 4 * 18 == header_bytes(tensors)
        True
    """
    entries, offset = dict[str, object](), 0
    order = [*_CODES]
    for name in sorted(tensors, key=lambda n: (order.index(tensors[n].dtype), n)):
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = len(json.dumps(entries, separators=(",", ":")))
    return 8 + -(-text // 8) * 8
