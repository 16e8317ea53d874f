import pytest

from diffprune.lab.report import rows as frames
from diffprune.lab.report.diagram import Block
from diffprune.lab.report.networks import LayerCost, Network
from diffprune.lab.runs.records import read_runs


@pytest.fixture
def runs(make_run):
    return read_runs([make_run("full", gates={}), make_run("small")])


def test_there_is_a_row_for_every_epoch(runs):
    rows = frames.epoch_rows(runs)
    assert [(row["run"], row["epoch"]) for row in rows] == [
        (run, epoch) for run in ("full", "small") for epoch in (1, 2, 3, 4)
    ]
    assert rows[-1]["says"] == "small: 4.00 % error, 4-10-100, 500k MACs"


def test_pace_is_processor_time_per_step(runs):
    assert frames.pace_title(runs) == "Processor time per step, ms"
    assert frames.epoch_rows(runs)[1]["pace"] == pytest.approx(1250 / 30)


def test_old_records_know_no_steps(make_run):
    folder = make_run("old")
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"steps": 30', '"steps": 0'))
    runs = read_runs([folder])
    assert frames.pace_title(runs) == "Time per epoch, s"
    assert frames.epoch_rows(runs)[1]["pace"] == 1.5


def test_widths_are_shares_of_what_there_was(runs):
    rows = frames.width_rows(runs[1:], {"conv1": 20, "conv2": 50, "fc1": 500})
    last = {row["gate"]: (row["units"], row["share"]) for row in rows[-3:]}
    assert last == {"conv1": (4, 0.2), "conv2": (10, 0.2), "fc1": (100, 0.2)}


def test_bars_are_as_long_as_roots():
    network = Network(name="small", widths={"conv1": 4})
    before, after = frames.architecture_rows(
        [network], {"conv1": 16}, at_start="before"
    )
    assert (before["right"] - before["left"], after["right"] - after["left"]) == (4, 2)
    assert (before["state"], after["state"], after["label"]) == (
        "before",
        "after",
        "16 → 4",
    )


def test_histograms_count_every_unit_once(runs):
    rows = frames.gate_rows(runs, ["fc1"])
    assert {row["gate"] for row in rows} == {"fc1"}
    for epoch, units in ((1, 250), (4, 100)):
        assert sum(row["count"] for row in rows if row["epoch"] == epoch) == units


def test_probabilities_are_summed_up(runs):
    *_, last = frames.probability_rows(runs, "conv1")
    assert last == {
        "run": "small",
        "epoch": 4,
        "units": 4,
        "lowest": 0.125,
        "median": 0.5,
        "highest": 0.875,
    }


def test_of_many_gates_the_widest_are_drawn_in_order():
    dense = {f"layer{number}": number % 7 for number in range(20)}
    drawn = frames.widest(dense)
    assert len(drawn) == frames.MAX_GATES
    assert drawn == [gate for gate in dense if gate in drawn]
    others = set(dense) - set(drawn)
    assert min(dense[gate] for gate in drawn) >= max(dense[gate] for gate in others)


def test_a_probability_of_one_is_in_the_last_bin():
    assert list(frames._counts([1.0, 0.0, 0.999])) == [(0, 1), (frames.BINS - 1, 2)]


def test_long_runs_have_no_more_columns_than_can_be_seen(make_run):
    (run,) = read_runs([make_run("long", epochs=150, gates={"fc": 4})])
    rows = frames.gate_rows([run], ["fc"])
    starts = sorted({row["epoch"] for row in rows})
    assert len(starts) == 50
    assert starts[1:] == [row + 3 for row in starts[:-1]]
    assert {row["epochs"] for row in rows} == {3}


def test_blocks_are_paired_with_what_is_left_of_them():
    dense = [
        Block(name="input", units=None, sources=()),
        Block(name="a", units=100, sources=(0,), row=1),
        Block(name="a", units=100, sources=(1,), row=2),
        Block(name="b", units=25, sources=(0,), row=1, lane=1),
    ]
    small = [Block(name="a", units=9, sources=()), Block(name="a", units=4, sources=())]
    rows = frames.block_rows(dense, {"run": small})
    assert [row["after"] for row in rows] == [None, 9, 4, 0]
    assert [row["label"] for row in rows] == ["input", "100 → 9", "100 → 4", "25 → 0"]
    assert rows[3]["old"] == rows[1]["old"] / 2


def test_a_line_goes_around_what_is_between_its_ends():
    first = Block(name="a", units=1, sources=())
    near = Block(name="b", units=1, sources=(0,), row=1)
    far = Block(name="c", units=1, sources=(0, 1), row=2)
    by_edge = {}
    for row in frames.edge_rows([first, near, far]):
        by_edge.setdefault(row["edge"], []).append(row["x"])
    assert by_edge["0-1"] == by_edge["1-2"] == [0, 0, 0, 0]
    assert min(by_edge["0-2"]) < 0


def test_shares_are_of_the_whole_before():
    layers = [LayerCost("a", (30, 3), (0, 0)), LayerCost("b", (10, 1), (8, 2))]
    rows = frames.share_rows({"run": layers})
    found = [(r["cost"], r["layer"], r["state"], r["share"]) for r in rows]
    assert found == [
        ("macs", "b", "before", 1.0),
        ("macs", "b", "after", 0.25),
        ("parameters", "a", "before", 0.75),
        ("parameters", "a", "after", 0.075),
        ("parameters", "b", "before", 0.25),
        ("parameters", "b", "after", 0.025),
    ]
