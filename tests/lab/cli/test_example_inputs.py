import pytest
import torch

from diffprune.errors import ArgumentError
from diffprune.lab.cli.example_inputs import parse_inputs


@pytest.mark.parametrize(
    ("spec", "dtype", "shape"),
    [
        ("1,3,8,8", torch.float32, (1, 3, 8, 8)),
        ("5", torch.float32, (5,)),
        ("2, 3", torch.float32, (2, 3)),
        ("int64:2,16", torch.int64, (2, 16)),
        ("bool:2", torch.bool, (2,)),
        ("bfloat16:2", torch.bfloat16, (2,)),
    ],
)
def test_a_shape_is_a_tensor(spec, dtype, shape):
    (found,) = parse_inputs([spec])
    assert (found.dtype, tuple(found.shape)) == (dtype, shape)


def test_names_make_keyword_arguments():
    found = parse_inputs(["input_ids=int64:1,4", "scale=2"])
    assert {name: value.dtype for name, value in found.items()} == {
        "input_ids": torch.int64,
        "scale": torch.float32,
    }


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (["large"], "`large` is no shape"),
        (["1x3"], "`1x3` is no shape"),
        (["2,-1"], "`2,-1` is no shape"),
        (["2,"], "`2,` is no shape"),
        (["float:"], "`float:` is no shape"),
        (["int65:2"], "torch has no type `int65`"),
        (["nn:2"], "torch has no type `nn`"),
        (["x=2", "3"], "give every input a name of its own, or none"),
        (["x=2", "x=3"], "give every input a name of its own, or none"),
    ],
)
def test_what_cannot_be_read_is_explained(specs, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        parse_inputs(specs)
    assert "--input input_ids=int64:2,16" in str(caught.value)
