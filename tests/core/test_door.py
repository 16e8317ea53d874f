import pytest
import torch
from torch import nn

import diffprune as dp

CALLS = {
    "an option that there is not": (
        lambda: dp.Pruner(nn.Linear(2, 3), torch.rand(1, 2), budgte=0.5),
        r"^Pruner\(\) got an unexpected .* 'budgte'. Did you mean `budget`",
    ),
    "an option of something else": (
        lambda: dp.Pruner(nn.Linear(2, 3), torch.rand(1, 2), macs=0.5),
        r"argument 'macs'. It takes `model`, .*`budget`",
    ),
    "an option of a function that there is not": (
        lambda: dp.find_groups(nn.Linear(2, 3), torch.rand(1, 2), freez=["0"]),
        r"^find_groups\(\) got an unexpected .* 'freez'. Did you mean `freeze`\?",
    ),
    "nothing": (dp.find_groups, r"find_groups\(\) missing 2 required"),
    "too many": (
        lambda: dp.remove(nn.Linear(2, 3), torch.rand(1, 2), {}, keep={}),
        r"remove\(\) takes 2 positional arguments but 3",
    ),
}


@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS)
def test_a_call_that_cannot_be_is_refused_by_python_with_the_name_of_the_function(
    call, said
):
    with pytest.raises(TypeError, match=said):
        call()
