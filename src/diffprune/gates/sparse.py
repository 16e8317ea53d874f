"""Store a model with many zeros: values and their places.

The file is in the safetensors format. A tensor that is smaller that way is stored as
the values that are not zero and their flat indices; the header says which, as JSON.
"""

import json
import os
from pathlib import Path
from typing import Final, TypeVar

import torch
from torch import Tensor, nn

from diffprune._core import files, tensor_files
from diffprune._core.door import door
from diffprune._core.lending import borrowers, load_lent_
from diffprune._core.modules import check_can_change, check_has_values
from diffprune._core.snapshot import all_or_nothing
from diffprune._core.types import Int
from diffprune.errors import ArgumentError, StorageError

ModuleT = TypeVar("ModuleT", bound=nn.Module)
FORMAT: Final = "diffprune-sparse-1"
VALUES: Final = "values:"
INDICES: Final = "indices:"
DENSE: Final = "dense:"


@door
def save_sparse(model: nn.Module, path: str | os.PathLike[str]) -> int:
    """Write all parameters and buffers; return the number of bytes.

    Args:
        model: A model with many zeros in its tensors, as gates of weights leave them.
        path: The file to write, or to replace.

    Raises:
        ArgumentError: If the model's state holds something else than dense tensors, as
            that of quantized layers does; nothing was written.
        StorageError: If the disk refuses; a file that was there is as it was.

    Examples:
        >>> import tempfile, pathlib
        >>> layer = nn.Linear(100, 100, bias=False)
        >>> layer.weight.data[10:] = 0.0
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "layer.safetensors"
        >>> save_sparse(layer, path) < 9_000  # 40,000 as they are
        True
        >>> fresh = load_sparse(nn.Linear(100, 100, bias=False), path)
        >>> torch.equal(fresh.weight, layer.weight)
        True
    """
    check_has_values(model)
    tensors: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for name, tensor in model.state_dict().items():
        _check_plain(name, tensor)
        indices = _nonzero(tensor)
        if indices is not None and _sparse_bytes(tensor, indices) < tensor.nbytes:
            tensors[INDICES + name] = indices
            tensors[VALUES + name] = tensor.flatten()[indices.long()]
        else:
            tensors[DENSE + name] = tensor.clone().contiguous()
        shapes[name] = list(tensor.shape)
    target = Path(path)
    data = tensor_files.packed(tensors, format=FORMAT, shapes=json.dumps(shapes))
    files.write_bytes(target, data)
    return target.stat().st_size


@door
def load_sparse(model: ModuleT, path: str | os.PathLike[str]) -> ModuleT:
    """Load what `save_sparse` wrote into a model of the same shapes, in place.

    Args:
        model: A model of the class and size that was saved.
        path: The file.

    Returns:
        The same model.

    Raises:
        MissingFileError: If there is no such file.
        ArgumentError: If the file is damaged, or of another model; nothing has changed.
    """
    check_has_values(model)
    check_can_change(model)
    try:
        tensors, header = tensor_files.map_tensors(Path(path))
        state = _dense_state(tensors, header, model)
    except StorageError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"`{path}` is not a sparse file for this model: {error}\n"
            "Load it into the model that `save_sparse` was given."
        ) from error
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    lent = borrowers(tensors, state)
    overwritten = [tensor for tensor in tensors.values() if tensor not in lent]
    try:
        with all_or_nothing(model, overwritten=overwritten) as lend_:
            lend_(lent)
            load_lent_(model, state, lent)
    except RuntimeError as error:
        raise ArgumentError(f"`{path}` cannot be loaded: {error}") from error
    return model


def _check_plain(name: str, value: object) -> None:
    is_tensor = isinstance(value, Tensor)
    if not is_tensor or value.layout is not torch.strided or value.is_quantized:
        raise ArgumentError(
            f"`{name}` of the model is no dense tensor, and a sparse file holds no "
            "other.\nSave the model before it is quantized; make sparse tensors dense."
        )


def _nonzero(tensor: Tensor) -> Int[Tensor, " nonzero"] | None:
    """Where a tensor is not zero, if torch can tell for such numbers."""
    try:
        return tensor.flatten().nonzero().flatten().to(torch.int32)
    except NotImplementedError:  # float8, unsigned integers
        return None


def _sparse_bytes(tensor: Tensor, indices: Int[Tensor, " nonzero"]) -> int:
    too_long = tensor.numel() > torch.iinfo(torch.int32).max
    per_value = tensor.element_size() + indices.element_size()
    return tensor.numel() * per_value if too_long else indices.numel() * per_value


def _dense_state(
    tensors: dict[str, Tensor], header: dict[str, str], model: nn.Module
) -> dict[str, Tensor]:
    if header.get("format") != FORMAT:
        raise ArgumentError(f"its format is {header.get('format')!r}")
    shapes, expected = json.loads(header["shapes"]), model.state_dict()
    if set(shapes) != set(expected):
        raise ArgumentError(f"it holds {sorted(shapes)}, the model {sorted(expected)}")
    for name, like in expected.items():
        if shapes[name] != list(like.shape):
            raise ArgumentError(
                f"`{name}` is of {shapes[name]} in it, of {list(like.shape)} here"
            )
    return {name: _dense(name, tensors, like) for name, like in expected.items()}


def _dense(name: str, tensors: dict[str, Tensor], like: Tensor) -> Tensor:
    if DENSE + name in tensors:
        found = tensors[DENSE + name]
        if found.shape != like.shape or found.dtype != like.dtype:
            raise ArgumentError(f"`{name}` is {found.dtype} of {tuple(found.shape)}")
        return found
    indices, values = tensors[INDICES + name], tensors[VALUES + name]
    is_whole = indices.dtype == torch.int32
    fits = is_whole and indices.ndim == 1 and indices.shape == values.shape
    places = indices.long()  # a copy: what is checked is what is used
    inside = (
        fits
        and _rises(places)
        and (not len(places) or (places[0] >= 0 and places[-1] < like.numel()))
    )
    if not (inside and values.dtype == like.dtype):
        raise ArgumentError(f"the indices of `{name}` do not fit {tuple(like.shape)}")
    flat = tensor_files.new_like(like).zero_().view(-1)
    return flat.scatter_(0, places, values).view(like.shape)


def _rises(places: Int[Tensor, " nonzero"]) -> bool:
    numbers = places.numpy()  # compares ten times as fast as torch
    return bool((numbers[1:] > numbers[:-1]).all())
