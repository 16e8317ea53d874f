"""Pruned models as files: safetensors and JSON, without pickle."""

from diffprune._io.load import load_pruned as load_pruned
from diffprune._io.save import save_pruned as save_pruned
