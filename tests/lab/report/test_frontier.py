from diffprune.lab.report.frontier import Reference, front_rows
from diffprune.lab.report.networks import Network


def test_only_what_nothing_beats_is_on_the_front():
    def at(name, macs, error):
        return Network(name=name, macs=macs, parameters=1, error=error)

    rows = front_rows([at("a", 1, 3), at("b", 2, 2), at("c", 3, 2.5)], [])
    assert [row["best_macs"] for row in rows] == [True, True, False]


def test_references_compete_within_their_group():
    def at(label, parameters, error, group):
        return Reference(
            label=label, error=error, macs=1, parameters=parameters, group=group
        )

    ours = Network(name="ours", macs=1, parameters=1, error=0.1)
    theirs = [at("a", 5, 2, "x"), at("b", 6, 3, "x"), at("c", 7, 4, "y")]
    rows = front_rows([ours], theirs)
    best = [row["name"] for row in rows if row["best_parameters"]]
    assert best == ["ours", "a", "c"]
    assert [row["kind"] for row in rows] == ["your runs", "x", "x", "y"]
