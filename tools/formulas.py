"""Formulas of docstrings as plain HTML, so that no page fetches a script to show them.

Only the few TeX commands that the docstrings use are known; another one is an error.
"""

import re

_FORMULA = re.compile(r"\$([^$<\n]+)\$")
_COMMAND = re.compile(r"\\([a-z]+)")
_INDEX = re.compile(r"([_^])(?:\{([^}]*)\}|(\w))")
_SYMBOLS = {
    "beta": "β", "ge": "≥", "lambda": "λ", "le": "≤", "log": "log", "mu": "μ",
    "ne": "≠", "sum": "Σ", "zeta": "ζ",
}  # fmt: skip


def plain(html: str) -> str:
    r"""Replace every formula between dollar signs.

    Raises:
        KeyError: If a formula uses a command that is not in the table.

    Examples:
        >>> plain(r"the paper's $\lambda_j \ge 0$")
        "the paper's <i>λ<sub>j</sub> ≥ 0</i>"
    """
    return _FORMULA.sub(lambda found: f"<i>{_set(found[1])}</i>", html)


def _set(formula: str) -> str:
    indexed = _INDEX.sub(_place, formula)
    return _COMMAND.sub(lambda found: _SYMBOLS[found[1]], indexed)


def _place(found: re.Match[str]) -> str:
    tag = "sub" if found[1] == "_" else "sup"
    return f"<{tag}>{found[2] or found[3]}</{tag}>"
