import pytest

from tools.formulas import plain


@pytest.mark.parametrize(
    ("formula", "html"),
    [
        (r"$\beta$", "<i>β</i>"),
        (r"$u(s) \le \beta$", "<i>u(s) ≤ β</i>"),
        (r"$\zeta \ge 0$", "<i>ζ ≥ 0</i>"),
        (
            r"$\sum_j \lambda_j \sum_k P(z_{jk} &gt; 0)$",
            "<i>Σ<sub>j</sub> λ<sub>j</sub> Σ<sub>k</sub> P(z<sub>jk</sub> &gt; 0)</i>",
        ),
        ("no formula, $5", "no formula, $5"),
    ],
)
def test_formulas_become_plain_html(formula, html):
    assert plain(formula) == html


def test_an_unknown_command_is_an_error():
    with pytest.raises(KeyError, match="frac"):
        plain(r"$\frac12$")
