import logging
import warnings

import pytest

from diffprune._core.files import written_whole
from diffprune._graph import quiet


def test_files_get_their_names_once_all_are_complete(tmp_path):
    target = tmp_path / "new" / "model.onnx"
    with written_whole(target) as partial:
        partial.write_bytes(b"graph")
        partial.with_name("model.onnx.data").write_bytes(b"weights")
        assert not target.exists()
    names = {file.name: file.read_bytes() for file in target.parent.iterdir()}
    assert names == {"model.onnx": b"graph", "model.onnx.data": b"weights"}


def write_half(target):
    with written_whole(target) as partial:
        partial.write_bytes(b"half")
        raise OSError("full")


def test_after_a_failure_everything_is_as_before(tmp_path):
    target = tmp_path / "model.onnx"
    target.write_bytes(b"older")
    with pytest.raises(OSError, match="full"):
        write_half(target)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"older"]


def test_silence_ends(caplog):
    with quiet():
        warnings.warn("not heard", stacklevel=1)
        logging.getLogger("torch").error("not heard")
    logging.getLogger("torch").error("heard")
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", stacklevel=1)
    assert caplog.messages == ["heard"]
