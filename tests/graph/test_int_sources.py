import pytest

from diffprune._graph.int_sources import Attribute, Formula, Question, leaves

WIDTH = Attribute("block", "width", 12)
HEADS = Attribute("", "heads", 3)


def test_leaves_are_what_a_formula_is_computed_from():
    formula = Formula("*", Formula("//", WIDTH, HEADS), 2)
    assert list(leaves(formula)) == [WIDTH, HEADS]
    assert list(leaves(5)) == []
    assert str(formula) == "((block.width // heads) * 2)"


@pytest.mark.parametrize(("width", "answer"), [(12, True), (3, False)])
def test_a_question_is_answered_anew_for_other_values(width, answer):
    question = Question("<", HEADS, Formula("//", WIDTH, 2), "mine.py:1: if a < b:")
    values = {WIDTH: width, HEADS: HEADS.value}
    assert question.answer(values.__getitem__) is answer
    assert str(question) == "heads < (block.width // 2) (mine.py:1: if a < b:)"
