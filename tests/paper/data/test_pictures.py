import sys

import numpy as np
import pytest

from diffprune.errors import MissingPackageError
from paper.data.pictures import read_parquet, read_png

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("pixels", "mode"), [(PIXELS, "RGB"), (PIXELS[..., 0], "L")], ids=["colour", "grey"]
)
def test_pictures_are_read_without_loss(tmp_path, pixels, mode):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(read_png(tmp_path / "a.png", mode), pixels)


@pytest.mark.parametrize(
    ("package", "read"),
    [("PIL", read_png), ("pyarrow", lambda path: read_parquet(path, "image"))],
)
def test_without_its_package_the_message_says_what_to_install(
    package, read, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=r"pip install 'diffprune\[data\]'"):
        read(tmp_path / "file")
