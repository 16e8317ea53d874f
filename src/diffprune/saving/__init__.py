"""Pruned models as files, without pickle; knows neither gates nor training."""

from diffprune.saving.load import load_pruned as load_pruned
from diffprune.saving.pretrained import load_pretrained as load_pretrained
from diffprune.saving.save import save_pruned as save_pruned
