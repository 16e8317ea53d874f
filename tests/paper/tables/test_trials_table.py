from dataclasses import replace

from paper.lenet5_recipes import TRIALS
from paper.tables.trials_table import EVERY, trials_table


def test_a_trial_is_shown_every_so_often_and_in_the_end(done, lines_of):
    (epoch,) = done.epochs
    numbers = [1, EVERY, EVERY + 1, 2 * EVERY + 1]
    epochs = [replace(epoch, number=number, test_error=number) for number in numbers]
    run = replace(done, recipe=TRIALS[0](0), epochs=tuple(epochs))
    lines = lines_of(trials_table([run]))
    assert any(line.startswith("sigma 0.1") for line in lines)
    shown = [line.split()[0] for line in lines if " epochs " in line]
    assert shown == [str(EVERY), str(2 * EVERY + 1)]
    assert f"{EVERY}.00" in next(line for line in lines if f"{EVERY} epochs" in line)
