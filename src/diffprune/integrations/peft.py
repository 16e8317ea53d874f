"""LoRA adapters with a rank of their own in every layer, as PEFT itself saves them."""

import math
import re
from typing import Any

from peft import LoraConfig, PeftModel
from peft.tuners.lora import LoraLayer

from diffprune._core.door import door
from diffprune.errors import ArgumentError


@door
def write_ranks_(model: PeftModel, adapter: str = "default") -> dict[str, int]:
    """Let the config of an adapter say which rank each layer has by now.

    Afterwards `model.save_pretrained(folder)` writes what `PeftModel.from_pretrained`
    loads: ranks as `rank_pattern`, and `alpha_pattern` so that scales stay.

    Args:
        model: A model whose LoRA ranks were cut, without gates: what
            `Pruner.finalize` returned.
        adapter: Name of the adapter.

    Returns:
        The ranks, by name of the layer.

    Raises:
        ArgumentError: If there is no such adapter, it is not LoRA, or it has gates.
    """
    config: Any = model.peft_config.get(adapter)
    if not isinstance(config, LoraConfig):
        known = ", ".join(f"`{name}`" for name in model.peft_config)
        raise ArgumentError(
            f"`{adapter}` is no LoRA adapter of this model; it has {known}."
        )
    if any("_diffprune" in name for name, _ in model.named_modules()):
        raise ArgumentError(
            "the model still has gates: call `pruner.finalize()` before this."
        )
    ranks, alphas = dict[str, int](), dict[str, float]()
    for name, layer in model.get_base_model().named_modules():
        if isinstance(layer, LoraLayer) and adapter in layer.r:
            rank, scale = _rank(layer, adapter), float(layer.scaling[adapter])
            layer.r[adapter] = ranks[name] = rank
            alphas[name] = scale * (math.sqrt(rank) if config.use_rslora else rank)
    config.rank_pattern = {re.escape(name): rank for name, rank in ranks.items()}
    config.alpha_pattern = {re.escape(name): alpha for name, alpha in alphas.items()}
    return ranks


def _rank(layer: Any, adapter: str) -> int:  # noqa: ANN401 - PEFT's layers are untyped
    kinds = layer.lora_A, layer.lora_embedding_A
    weights = [kind[adapter] for kind in kinds if adapter in kind]
    first = weights[0]
    return int(first.shape[0] if hasattr(first, "shape") else first.weight.shape[0])
