"""Numbers of a config that may be widths: one for all layers, or one for each.

An architecture has numbers for single layers if its config holds a list of them, such
as the `intermediate_size` of Gemma 3n, or if its code reads `per_layer_config`.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """Where a config holds a number.

    Attributes:
        field: What it is called.
        layer: Which layer it is for; None for all.
        is_listed: Whether the field is a list with a number for each layer, rather
            than one that `per_layer_config` has another value for.
    """

    field: str
    layer: int | None = None
    is_listed: bool = False

    def __str__(self) -> str:
        if self.layer is None:
            return self.field
        if self.is_listed:
            return f"{self.field}[{self.layer}]"
        return f"per_layer_config[{self.layer}].{self.field}"


def for_all_layers(config: Any) -> dict[Setting, int]:  # noqa: ANN401 - of any architecture
    """The numbers that a config has for all layers at once."""
    return {Setting(n): v for n, v in vars(config).items() if _is_width(v)}


def for_each_layer(config: Any) -> dict[Setting, int]:  # noqa: ANN401 - as above
    """The numbers that a config has, or may have, for single layers."""
    layers = getattr(config, "num_hidden_layers", 0)
    listed = {
        Setting(name, layer, is_listed=True): number
        for name, numbers in vars(config).items()
        if _is_list(numbers, layers)
        for layer, number in enumerate(numbers)
    }
    return {**listed, **dict(_overrides(config, layers))}


def changed(config: Any, changes: Mapping[Setting, int]) -> Any:  # noqa: ANN401 - as above
    """A config with other numbers in it; None if it cannot have them."""
    config = copy.deepcopy(config)
    try:
        change_(config, changes)
        config.validate()  # as `from_pretrained` does
    except Exception:  # noqa: BLE001 - whatever a config thinks of such a number
        return None
    return config


def change_(config: Any, changes: Mapping[Setting, int]) -> None:  # noqa: ANN401 - as above
    """Write other numbers into a config."""
    saved = config.to_dict().get("per_layer_config") or {}
    layers = {int(layer): dict(values) for layer, values in saved.items()}
    for setting, value in changes.items():
        if setting.layer is None:
            setattr(config, setting.field, value)
        elif setting.is_listed:
            numbers = [*vars(config)[setting.field]]
            numbers[setting.layer] = value
            setattr(config, setting.field, numbers)
        else:
            layers.setdefault(setting.layer, {})[setting.field] = value
    if any(s.layer is not None and not s.is_listed for s in changes):
        config.per_layer_config = layers


def _overrides(config: Any, layers: int) -> Iterator[tuple[Setting, int]]:  # noqa: ANN401 - as above
    """Numbers that one layer may have another value of, as far as a config knows."""
    if not hasattr(type(config), "per_layer_config"):
        return
    names = [setting.field for setting in for_all_layers(config)]
    for layer in range(layers):
        ours = vars(config.per_layer_config[layer])
        for name in names:
            if _is_width(ours[name]) and name != "num_hidden_layers":
                yield Setting(name, layer), ours[name]


def _is_width(value: object) -> bool:
    return type(value) is int and value > 1


def _is_list(value: Any, layers: int) -> bool:  # noqa: ANN401 - as above
    if not isinstance(value, list | tuple) or not layers:
        return False
    return len(value) == layers and all(_is_width(number) for number in value)
