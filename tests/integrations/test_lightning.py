"""One callback prunes a LightningModule; checkpoints fit before and after a cut."""

import copy
import logging

import pytest
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import diffprune as dp
from diffprune.errors import ArgumentError
from several_processes import run

lightning = pytest.importorskip("lightning")
pl = lightning.pytorch
callbacks = pl.callbacks

from diffprune.integrations.lightning import (  # noqa: E402 - if there is Lightning
    Pruning,
    load_from_checkpoint,
)

# Lightning's advice on data loaders is not about pruning.
pytestmark = pytest.mark.filterwarnings(
    "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"
)
EPOCHS, BATCHES = 6, 8
STEPS = EPOCHS * BATCHES


class Lit(pl.LightningModule):
    """8 -> 16 -> batch norm -> relu -> 12 -> relu -> 1."""

    def __init__(self, hidden=16, **_options):
        super().__init__()
        self.save_hyperparameters()
        self.example_input_array = torch.rand(4, 8)
        self.net = nn.Sequential(
            nn.Linear(8, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, 12),
            nn.ReLU(),
            nn.Linear(12, 1),
        )

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.mse_loss(self(x), y.to(x))

    def validation_step(self, batch, _):
        self.log("val", self.training_step(batch, _))

    test_step = validation_step

    def configure_optimizers(self):
        optimizer = optim.AdamW(
            self.parameters(), lr=0.02, weight_decay=self.hparams.get("decay", 0.0)
        )
        made = {
            "onecycle": lambda: optim.lr_scheduler.OneCycleLR(
                optimizer, 0.02, total_steps=STEPS
            ),
            "cosine": lambda: optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        }.get(self.hparams.get("schedule"))
        if made is None:
            return optimizer
        step = {"scheduler": made(), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": step}


def loader(seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(8 * BATCHES, 8, generator=random)
    return DataLoader(TensorDataset(x, x[:, :1].relu()), batch_size=8)


def trainer(folder, *more, **options):
    settings = {
        "max_epochs": EPOCHS,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "log_every_n_steps": 1,
    }
    return pl.Trainer(callbacks=list(more), **(settings | options))


def pruning(**options):
    return Pruning(budget=dp.Budget(macs=0.5), **options)


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@pytest.fixture
def lit():
    torch.manual_seed(0)
    return Lit()


def widths(module):
    return [m.out_features for m in module.modules() if isinstance(m, nn.Linear)]


def same(one, other):
    with torch.no_grad():
        x = torch.randn(5, 8)
        return torch.allclose(one.eval()(x), other.eval()(x), atol=1e-6)


def macs(module):
    outs = widths(module)
    return sum(w * o for w, o in zip([8, *outs[:-1]], outs, strict=True))


def test_a_module_shrinks_to_its_budget_and_comes_back_plain(lit, tmp_path):
    pruner = pruning()
    trainer(tmp_path, pruner).fit(lit, loader())
    assert list(lit.state_dict()) == list(Lit().state_dict())
    assert macs(lit) <= 0.5 * macs(Lit())
    assert pruner.pruner.steps == STEPS
    assert pruner.pruner.controller.budgets[0].steps == STEPS


def test_a_part_of_a_module_can_be_pruned(lit, tmp_path):
    pruner = pruning(module="net", example_inputs=torch.rand(2, 8))
    trainer(tmp_path, pruner).fit(lit, loader())
    assert pruner.pruner.model is lit.net
    assert macs(lit) <= 0.5 * macs(Lit())


def test_steps_of_the_optimizer_are_counted_not_batches(lit, tmp_path):
    pruner = pruning()
    trainer(tmp_path, pruner, accumulate_grad_batches=2).fit(lit, loader())
    assert pruner.pruner.steps == STEPS // 2
    assert pruner.pruner.controller.budgets[0].steps == STEPS // 2


class Stop(callbacks.Callback):
    """Save after an epoch, and go on."""

    def __init__(self, path, epoch):
        self.path, self.epoch = path, epoch

    def on_train_epoch_end(self, trainer, _):
        if trainer.current_epoch == self.epoch:
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize("epoch", [0, 4], ids=["gated", "folded"])
@pytest.mark.parametrize("schedule", ["onecycle", "cosine"])
def test_a_run_that_was_interrupted_ends_as_one_that_was_not(tmp_path, schedule, epoch):
    torch.manual_seed(0)
    whole, path = Lit(schedule=schedule, decay=0.1), tmp_path / "half.ckpt"
    trainer(tmp_path, pruning(), Stop(path, epoch)).fit(whole, loader())
    saved = torch.load(path)["state_dict"]
    assert saved["net.0.weight"].shape[0] < 16
    assert any("logits" in name for name in saved) == (epoch == 0)

    torch.manual_seed(1)
    again, pruner = Lit(schedule=schedule, decay=0.1), pruning()
    trainer(tmp_path, pruner).fit(again, loader(), ckpt_path=path)
    assert pruner.pruner.steps == STEPS
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def best(**options):
    return callbacks.ModelCheckpoint(monitor="val", save_top_k=-1, **options)


@pytest.mark.parametrize("weights_only", [False, True])
def test_the_best_checkpoint_loads_although_the_module_went_on(
    lit, tmp_path, weights_only
):
    saving = best(dirpath=tmp_path, filename="{epoch}", save_weights_only=weights_only)
    teacher = trainer(tmp_path, pruning(), saving, enable_checkpointing=True)
    teacher.fit(lit, loader(), loader(1))
    final = macs(lit)
    for epoch in (5, 1, 0):
        path = tmp_path / f"epoch={epoch}.ckpt"
        (found,) = teacher.test(lit, loader(1), ckpt_path=path, verbose=False)
        assert found["val"] == pytest.approx(validated(saving, path), rel=1e-4)
        assert macs(lit) == final if epoch else macs(lit) > final
        loaded = load_from_checkpoint(Lit, path)
        assert type(loaded) is Lit
        assert same(loaded, lit)


def validated(saving, path):
    return float(saving.best_k_models[str(path)])


def test_a_finished_module_comes_back_from_its_checkpoint(lit, tmp_path):
    teacher = trainer(tmp_path, pruning())
    teacher.fit(lit, loader())
    teacher.save_checkpoint(tmp_path / "final.ckpt")
    again = load_from_checkpoint(Lit, tmp_path / "final.ckpt")
    assert widths(again) == widths(lit)
    assert same(again, lit)
    with pytest.raises(ArgumentError, match="of a finished run"):
        trainer(tmp_path, pruning()).fit(
            Lit(), loader(), ckpt_path=tmp_path / "final.ckpt"
        )


def test_a_checkpoint_without_pruning_loads_as_ever(lit, tmp_path):
    teacher = trainer(tmp_path, max_epochs=1)
    teacher.fit(lit, loader())
    teacher.save_checkpoint(tmp_path / "plain.ckpt")
    assert same(load_from_checkpoint(Lit, tmp_path / "plain.ckpt"), lit)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision(lit, tmp_path, precision):
    trainer(tmp_path, pruning(), precision=precision).fit(lit, loader())
    assert macs(lit) <= 0.5 * macs(Lit())


AVERAGES = {
    "ema": lambda: callbacks.EMAWeightAveraging(decay=0.5),
    "swa": lambda: callbacks.StochasticWeightAveraging(0.02, swa_epoch_start=2),
}


@pytest.mark.parametrize("kind", AVERAGES)
def test_averages_are_cut_too(tmp_path, kind):
    torch.manual_seed(0)
    whole, path = Lit(), tmp_path / "half.ckpt"
    trainer(tmp_path, pruning(), AVERAGES[kind](), Stop(path, 3)).fit(whole, loader())
    assert macs(whole) <= 0.5 * macs(Lit())
    again = Lit()
    trainer(tmp_path, pruning(), AVERAGES[kind]()).fit(again, loader(), ckpt_path=path)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor)


def test_a_copy_made_too_early_is_refused(lit, tmp_path):
    with pytest.raises(ArgumentError, match="Put `Pruning` first"):
        trainer(tmp_path, AVERAGES["ema"](), pruning()).fit(lit, loader())


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork"])
def test_processes_that_hand_a_small_module_back_are_refused(lit, tmp_path, strategy):
    teacher = trainer(tmp_path, strategy=strategy, devices=2)
    with pytest.raises(ArgumentError, match="2 processes train this model by"):
        pruning().setup(teacher, lit, "fit")
    assert list(lit.state_dict()) == list(Lit().state_dict())


def together(rank, folder, options):
    logging.getLogger("lightning").setLevel(logging.ERROR)
    torch.manual_seed(rank)
    several = {"strategy": "ddp", "devices": 2}
    keep = callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)
    whole, first = Lit(), Pruning(**options)
    trainer(folder, first, keep, enable_checkpointing=True, **several).fit(
        whole, loader(), loader()
    )
    again, second = Lit(), Pruning(**options)
    path = folder / "epoch=1.ckpt"
    trainer(folder, second, **several).fit(again, loader(), ckpt_path=path)
    state = [p.tolist() for p in whole.parameters()]
    resumed = [p.tolist() for p in again.parameters()]
    return state, resumed, macs(whole), len(first.pruner.history), widths(again)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [
        {"budget": dp.Budget(macs=0.5)},
        {"budget": dp.Budget(macs=0.5, pretrained=True)},
        {
            "budget": dp.Budget(macs=0.5),
            "module": "net",
            "example_inputs": torch.rand(4, 8),
        },
    ],
    ids=["whole", "pretrained", "part"],
)
def test_two_processes_end_with_the_same_small_module(tmp_path, options):
    first, second = run(together, tmp_path, options)
    assert first == second
    assert first[2] <= 0.5 * macs(Lit())
    assert first[3]
    assert first[0] == first[1]  # and so they do if they are interrupted


def test_an_input_is_asked_for(lit, tmp_path):
    lit.example_input_array = None
    with pytest.raises(ArgumentError, match="example_inputs="):
        trainer(tmp_path, pruning()).fit(lit, loader())


def test_a_part_that_there_is_not_is_named(lit, tmp_path):
    with pytest.raises(ArgumentError, match=r"module: .*`nett`\.\n.* has `net`"):
        trainer(tmp_path, pruning(module="nett")).fit(lit, loader())


def test_optimizers_without_gates_are_refused(lit, tmp_path):
    weights = list(lit.parameters())
    lit.configure_optimizers = lambda: optim.SGD(weights, 0.1)
    with pytest.raises(ArgumentError, match="no optimizer trains the gates"):
        trainer(tmp_path, pruning()).fit(lit, loader())


def test_what_is_left_is_logged(lit, tmp_path):
    logger = pl.loggers.CSVLogger(tmp_path)
    trainer(tmp_path, pruning(), logger=logger).fit(lit, loader())
    text = (tmp_path / "lightning_logs/version_0/metrics.csv").read_text()
    for name in ("macs", "parameters", "penalty", "certificate", "width/net.0"):
        assert f"diffprune/{name}" in text


def test_a_module_can_keep_its_gates(lit, tmp_path):
    pruner = pruning(finalize=False)
    trainer(tmp_path, pruner).fit(lit, loader())
    gated = copy.deepcopy(lit)
    assert same(pruner.pruner.finalize(), gated)
