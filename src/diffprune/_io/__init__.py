"""Pruned models as files, without pickle; knows neither gates nor training."""

from diffprune._io.load import load_pruned as load_pruned
from diffprune._io.save import save_pruned as save_pruned
