"""Architectures of transformers, each as small as it goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

# Numbers that differ from each other say which width is which.
_TEXT: Final = {
    "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
}  # fmt: skip
_WIDTHS: Final = {
    "hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
    "intermediate_size": 20,
}  # fmt: skip
_SHARED: Final = {"num_key_value_heads": 2}
_HEAD_DIM: Final = {"head_dim": 10, "query_pre_attn_scalar": 10}
MANY_HEADS: Final = {
    "hidden_size": 64, "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip
_GPT: Final = {"n_embd": 48, "n_layer": 1, "n_head": 4, "n_inner": 20}
_PIXELS: Final = {"image_size": 8, "patch_size": 4}
_PAIR: Final = {
    "d_model": 48, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 28, "max_position_embeddings": 16,
}  # fmt: skip
_T5: Final = {"d_model": 48, "d_kv": 10, "d_ff": 20, "num_layers": 1, "num_heads": 4}
_MAMBA: Final = {"hidden_size": 48, "num_hidden_layers": 1, "state_size": 7}
_EXPERTS: Final = {"experts_implementation": "batched_mm"}

_IDS: Final = torch.arange(3, 19).view(2, 8)
_IMAGES: Final = torch.linspace(0, 1, 384).view(2, 3, 8, 8)
INPUTS: Final[Mapping[str, Mapping[str, Tensor]]] = {
    "text": {"input_ids": _IDS},
    "masked": {"input_ids": _IDS, "attention_mask": torch.ones_like(_IDS)},
    "image": {"pixel_values": _IMAGES},
    "both": {"input_ids": _IDS, "pixel_values": _IMAGES},
    "two texts": {"input_ids": _IDS, "decoder_input_ids": _IDS},
    "large image": {"pixel_values": torch.linspace(0, 1, 1536).view(2, 3, 16, 16)},
    "sound": {"input_values": torch.linspace(0, 1, 800).view(2, 400)},
    "spectrum": {
        "input_features": torch.linspace(0, 1, 320).view(2, 8, 20),
        "decoder_input_ids": _IDS,
    },
}

HEADS, INSIDE, HIDDEN = "heads", "units inside heads", "hidden units"
PARTS: Final = {
    2: HEADS, 4: HEADS, 3: INSIDE, 5: INSIDE, 6: INSIDE, 10: INSIDE, 12: INSIDE,
    20: HIDDEN, 28: HIDDEN, 192: HIDDEN, 48: "the layer before the classifier",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An architecture, as small as it goes.

    Attributes:
        kind: The class of the model.
        config: The class of its config.
        sizes: What the config says.
        inputs: What the model is called with, as in `INPUTS`.
        parts: What groups of a size are, where it is not as in most models.
        may_have_many: Whether to look at a model with so many heads, too, that some
            numbers of them do not divide its width.
    """

    kind: str
    config: str
    sizes: Mapping[str, Any]
    inputs: str = "text"
    parts: Mapping[int, str] = field(default_factory=dict[int, str])
    may_have_many: bool = False


def _text(name: str, more: Mapping[str, Any] | None = None, **options: Any) -> Case:  # noqa: ANN401 - of any case
    """A model that classifies texts."""
    sizes = {**_TEXT, **_WIDTHS, **(more or {})}
    kind = f"{name}ForSequenceClassification"
    return Case(kind, f"{name}Config", sizes, **options)


def _causal(name: str, *more: Mapping[str, Any], config: str = "") -> Case:
    """A decoder."""
    sizes = {**_TEXT, **_WIDTHS, "use_cache": False}
    for one in more:
        sizes |= one
    kind, config = f"{name}ForCausalLM", config or f"{name}Config"
    return Case(kind, config, sizes, may_have_many=_HEAD_DIM in more)


CASES: Final[Mapping[str, Case]] = {
    "BERT": _text("Bert"),
    "RoBERTa": _text("Roberta", inputs="masked"),
    "ELECTRA": _text("Electra"),
    "ALBERT": _text("Albert", {"embedding_size": 8}),
    "DistilBERT": Case(
        "DistilBertForSequenceClassification", "DistilBertConfig",
        {"vocab_size": 50, "dim": 48, "n_layers": 1, "n_heads": 4, "hidden_dim": 20},
    ),
    "MPNet": _text("MPNet"),
    "ModernBERT": _text("ModernBert", {"cls_token_id": 0, "sep_token_id": 1}),
    "DeBERTa-v2": _text("DebertaV2", {
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 4, "share_att_key": True, "norm_rel_ebd": "layer_norm",
        "position_biased_input": False, "type_vocab_size": 0,
    }, parts={12: "units inside heads of values"}),
    "ViT": Case(
        "ViTForImageClassification", "ViTConfig", {**_WIDTHS, **_PIXELS}, "image"
    ),
    "DINOv2": Case(
        "Dinov2ForImageClassification", "Dinov2Config", {**_WIDTHS, **_PIXELS}, "image"
    ),
    "DINOv3": Case(
        "DINOv3ViTModel", "DINOv3ViTConfig", {**_WIDTHS, **_PIXELS}, "image"
    ),
    "CLIP": Case("CLIPModel", "CLIPConfig", {
        "text_config": {**_TEXT, **_WIDTHS}, "vision_config": {**_WIDTHS, **_PIXELS},
        "projection_dim": 8,
    }, "both"),
    "text model of CLIP": Case("CLIPTextModel", "CLIPTextConfig", {**_TEXT, **_WIDTHS}),
    "vision model of CLIP": Case(
        "CLIPVisionModel", "CLIPVisionConfig", {**_WIDTHS, **_PIXELS}, "image"
    ),
    "vision model of SigLIP": Case(
        "SiglipVisionModel", "SiglipVisionConfig", {**_WIDTHS, **_PIXELS}, "image"
    ),
    "Swin": Case("SwinForImageClassification", "SwinConfig", {
        "image_size": 16, "patch_size": 2, "embed_dim": 48, "depths": [1],
        "num_heads": [4], "window_size": 2,
    }, "large image"),
    "Whisper": Case("WhisperForConditionalGeneration", "WhisperConfig", {
        **_TEXT, **_PAIR, "num_mel_bins": 8, "max_source_positions": 10,
        "max_target_positions": 16, "decoder_start_token_id": 0, "use_cache": False,
    }, "spectrum", parts={48: "the first convolution"}),
    "Wav2Vec2": Case("Wav2Vec2ForCTC", "Wav2Vec2Config", {
        **_WIDTHS, "vocab_size": 50, "conv_dim": (8, 8), "conv_stride": (5, 2),
        "conv_kernel": (10, 3), "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2,
    }, "sound", parts={8: "the first convolution"}),
    "T5": Case("T5ForConditionalGeneration", "T5Config", {
        **_TEXT, **_T5, "decoder_start_token_id": 0, "use_cache": False,
    }, "two texts"),
    "BART": Case("BartForConditionalGeneration", "BartConfig", {
        **_TEXT, **_PAIR, "use_cache": False,
    }, "two texts"),
    "GPT-2": Case(
        "GPT2LMHeadModel", "GPT2Config", {**_TEXT, **_GPT, "use_cache": False}
    ),
    "OPT": _causal("OPT", {"ffn_dim": 20, "word_embed_proj_dim": 48}),
    "GPT-NeoX": _causal("GPTNeoX"),
    "BLOOM": _causal("Bloom"),
    "Falcon": _causal(
        "Falcon", {"num_kv_heads": 2, "new_decoder_architecture": True}
    ),
    "Llama": _causal("Llama", _SHARED, _HEAD_DIM),
    "Mistral": _causal("Mistral", _SHARED, _HEAD_DIM),
    "Qwen2": _causal("Qwen2", _SHARED),
    "Qwen3": _causal("Qwen3", _SHARED, _HEAD_DIM),
    "Gemma": _causal("Gemma", _SHARED, _HEAD_DIM),
    "Gemma 2": _causal("Gemma2", _SHARED, _HEAD_DIM),
    "Gemma 3": _causal("Gemma3", _SHARED, _HEAD_DIM, config="Gemma3TextConfig"),
    "Granite": _causal("Granite", _SHARED),
    "SmolLM3": _causal("SmolLM3", _SHARED),
    "Phi": _causal("Phi"),
    "Phi-3": _causal("Phi3", _SHARED),
    "OLMo 2": _causal("Olmo2", _SHARED),
    "Mixtral": _causal(
        "Mixtral", _SHARED, _HEAD_DIM, _EXPERTS, {"num_local_experts": 3}
    ),
    "Qwen3 MoE": _causal("Qwen3Moe", _SHARED, _HEAD_DIM, _EXPERTS, {
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
        "intermediate_size": 24,
    }),
    "Mamba": Case("MambaForCausalLM", "MambaConfig", {
        **_TEXT, **_MAMBA, "time_step_rank": 5, "use_cache": False,
    }, parts={96: "inner channels", 7: "states", 5: "the rank of the time step"}),
    "Mamba 2": Case("Mamba2ForCausalLM", "Mamba2Config", {
        **_TEXT, **_MAMBA, "num_heads": 8, "head_dim": 12, "n_groups": 1,
        "chunk_size": 4, "use_cache": False,
    }, parts={7: "states"}),
}  # fmt: skip
