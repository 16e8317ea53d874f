"""Numbers as people read them: units, counts, shares, bytes and times as short text."""

import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from rich import filesize

_FEW_GATES: Final = 6


def typed(command: str, folder: str | os.PathLike[str], rest: str = "") -> str:
    """A command about a folder, as one types it into a shell.

    Examples:
        >>> typed("bench", "my runs/a", "--compile")
        "diffprune bench 'my runs/a' --compile"
        >>> typed("bench", "-a")
        'diffprune bench ./-a'
    """
    name = os.fspath(folder)
    name = f"./{name}" if name.startswith("-") else name  # it is no option
    return f"diffprune {command} {shlex.quote(name)} {rest}".rstrip()


def architecture(widths: Mapping[str, int]) -> str:
    """Units per gate, joined as the literature writes them; empty without gates.

    Examples:
        >>> architecture({"conv1": 20, "conv2": 50})
        '20-50'
    """
    return "-".join(map(str, widths.values()))


def spell_widths(widths: Mapping[str, int]) -> str:
    """Units per gate; of more than six gates, their sum.

    Examples:
        >>> spell_widths({"conv1": 20, "conv2": 50})
        '20-50'
        >>> spell_widths({f"layer{number}": 100 for number in range(24)})
        '2,400 in 24 gates'
    """
    if len(widths) <= _FEW_GATES:
        return architecture(widths)
    return f"{sum(widths.values()):,} in {len(widths)} gates"


def short(number: int) -> str:
    """A count with three digits and a letter.

    Examples:
        >>> short(2_293_000), short(414_150), short(7)
        ('2.29M', '414k', '7')
    """
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:#.3g}".rstrip(".") + letter
    return str(number)


def percent(share: float) -> str:
    """A share in percent, with two digits that matter.

    Examples:
        >>> percent(0.04503), percent(1.0), percent(0.3)
        ('4.5 %', '100 %', '30 %')
    """
    number = 100 * share
    return f"{number:.0f} %" if number >= 10 else f"{number:.2g} %"


def file_size(number: int) -> str:
    """A number of bytes.

    Examples:
        >>> file_size(52_100), file_size(1_724_920), file_size(512)
        ('52.1 kB', '1.7 MB', '512 bytes')
    """
    return filesize.decimal(number)


def duration(seconds: float) -> str:
    """A time with its unit.

    Examples:
        >>> duration(0.0123), duration(2.5), duration(0.000045)
        ('12.3 ms', '2.5 s', '45 µs')
    """
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def cost(name: str, amount: float) -> str:
    """What a model costs, in the unit of that cost.

    Examples:
        >>> cost("macs", 2_293_000.0), cost("size", 52_100.0), cost("latency", 0.0123)
        ('2.29M', '52.1 kB', '12.3 ms')
    """
    if name == "latency":
        return duration(amount)
    return (file_size if name in {"memory", "size"} else short)(int(amount))


def listed(names: Iterable[str]) -> str:
    """Names for a message.

    Examples:
        >>> listed(["conv1", "fc"])
        '`conv1`, `fc`'
    """
    return ", ".join(f"`{name}`" for name in names) or "none"
