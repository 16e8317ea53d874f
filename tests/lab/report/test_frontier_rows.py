from diffprune.lab.report.frontier_rows import front_rows
from diffprune.lab.report.networks import Network
from diffprune.lab.report.references import lenet5_on_mnist


def test_only_what_nothing_beats_is_on_the_front():
    def at(name, macs, error):
        return Network(name=name, macs=macs, parameters=1, error=error)

    rows = front_rows([at("a", 1, 3), at("b", 2, 2), at("c", 3, 2.5)], [])
    assert [row["best_macs"] for row in rows] == [True, True, False]


def test_published_networks_compete_among_themselves():
    rows = front_rows([], lenet5_on_mnist())
    best = {row["name"] for row in rows if row["best_parameters"]}
    assert best == {"L0-ARM sep", "BC-GHS", "DBB", "DiffPrune"}
    assert {row["kind"] for row in rows} == {"the paper", "others, published"}
