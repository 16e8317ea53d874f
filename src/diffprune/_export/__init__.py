"""Small models as files for other runtimes."""

from diffprune._export.onnx import to_onnx as to_onnx
from diffprune._export.program import to_exported_program as to_exported_program
