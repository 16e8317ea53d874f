import json

import numpy as np
import pytest
import torch
from PIL import Image

from diffprune.lab.image_batches import Examples
from paper.data.cifar10 import CIFAR10, augment, halved, load_cifar10, normalise
from paper.data.download import cache_folder

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)


LABELS = np.arange(12, dtype=np.uint8) % 10
BATCHES = {
    name: slice(2 * n, 2 * n + 2)
    for n, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"])
}
EXPECTED = {
    "train_images": IMAGES[:10], "train_labels": LABELS[:10],
    "test_images": IMAGES[10:], "test_labels": LABELS[10:],
}  # fmt: skip


def _write_binary(folder):
    for name, chosen in BATCHES.items():
        planes = IMAGES[chosen].transpose(0, 3, 1, 2).reshape(2, -1)
        records = np.concatenate([LABELS[chosen][:, None], planes], axis=1)
        records.tofile(folder / f"{name}.bin")


def _write_png(folder):
    for name, chosen in BATCHES.items():
        rows = IMAGES[chosen].reshape(2, 32 * 32, 3)
        Image.fromarray(rows).save(folder / f"{name}.png")
    for part in ("train", "test"):
        labels = EXPECTED[f"{part}_labels"].tolist()
        (folder / f"{part}_lables.json").write_text(json.dumps(labels))


@pytest.mark.parametrize(("write", "source"), [(_write_binary, 0), (_write_png, 1)])
def test_both_formats_give_the_same_arrays(tmp_path, write, source):
    write(tmp_path)
    files = {path.name: path for path in tmp_path.iterdir()}
    found = CIFAR10.sources[source].decode(files)
    assert set(found) == set(EXPECTED)
    for name, expected in EXPECTED.items():
        assert found[name].dtype == np.uint8
        assert np.array_equal(found[name], expected)


@pytest.mark.parametrize(
    ("source", "name", "content"),
    [
        (0, "data_batch_3.bin", b"too short"),
        (1, "data_batch_3.png", b"no picture"),
        (1, "test_lables.json", b"[300]"),
        (1, "test_lables.json", b"null"),
        (1, "test_lables.json", b"[1,"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, source, name, content):
    (_write_binary, _write_png)[source](tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises((ValueError, OSError), match=name):
        CIFAR10.sources[source].decode({path.name: path for path in tmp_path.iterdir()})


def test_normalised_images_have_the_scale_of_the_data_set():
    images = torch.tensor([125.3, 123.0, 113.9]).view(1, 3, 1, 1).expand(2, 3, 32, 32)
    assert normalise(images).abs().max() == 0
    assert normalise(images + 63).flatten(2).mean(dim=(0, 2))[0].item() == 1


def test_half_the_side_are_means_of_four_pixels():
    images = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
    found = halved(Examples(images, torch.arange(12)))
    four = images[5, 1, 2:4, 30:32].double().mean()
    assert found.images.shape == (12, 3, 16, 16)
    assert found.images.dtype == torch.uint8
    assert abs(found.images[5, 1, 1, 15].item() - four) <= 0.5
    assert found.labels.tolist() == [*range(12)]


def test_small_images_are_shifted_less():
    column = torch.arange(16, dtype=torch.uint8).expand(200, 3, 16, 16) * 10
    shifts = (augment(column)[:, 0, 0, 8] - normalise(column)[:, 0, 0, 8]) * 63 / 10
    assert set(shifts.round().int().tolist()) <= {*range(-3, 3)}
    assert len(set(shifts.round().int().tolist())) > 3


def test_an_augmented_image_is_a_shifted_and_perhaps_mirrored_one():
    images = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
    plain, found = normalise(images), augment(images)
    padded = torch.nn.functional.pad(plain, [4] * 4, mode="reflect")
    for x, big in zip(found, padded, strict=True):
        flipped = big.flip(-1)
        shifts = [
            (y, z) for y in range(9) for z in range(9) for source in (big, flipped)
            if source[:, y : y + 32, z : z + 32].equal(x)
        ]  # fmt: skip
        assert len(shifts) == 1


def test_augmentation_mirrors_half_and_uses_every_shift():
    ramp = torch.arange(32.0).expand(2000, 3, 32, 32)
    corners = augment(ramp)[:, 0, 0, 4:28]
    mirrored = (corners[:, 0] > corners[:, -1]).float().mean()
    assert mirrored.item() == pytest.approx(0.5, abs=0.05)
    assert len(corners[:, 0].unique()) > 9


@pytest.mark.slow
def test_cifar10_is_whole():
    if not (cache_folder() / "cifar10.npz").exists():
        pytest.skip("NOT TESTED ON REAL DATA: CIFAR-10 is not in the cache")
    data = load_cifar10()
    assert data.train.images.shape == (50_000, 3, 32, 32)
    assert data.test.labels.bincount().tolist() == [1000] * 10
    mean = data.train.images.float().mean(dim=(0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
