"""What to type to use a run's network, ready to copy; runs nothing."""

import shlex

from diffprune.lab.report.page import Snippet
from diffprune.lab.report.sources import Source


def snippets(source: Source) -> list[Snippet]:
    """How to load and export the network of a run, or how to finish the run."""
    folder = source.folder.as_posix()
    quoted = shlex.quote(folder)
    if source.run.outcome is None:
        return [Snippet(title="Finish the run", code=f"diffprune train {quoted}")]
    return [
        Snippet(
            title="Load it in Python",
            code=(
                "import diffprune as dp\n\n"
                "model = make_model()  # as it was before training\n"
                f"small = dp.load_pruned(model, {folder!r})"
            ),
        ),
        Snippet(
            title="Export it to ONNX",
            code=f"diffprune export {quoted} --to onnx",
        ),
        Snippet(
            title="Measure it on this machine",
            code=f"diffprune bench {quoted}",
        ),
    ]
