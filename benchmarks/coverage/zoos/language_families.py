"""More families of transformers, decoders and encoders, with tiny configurations.

Most take the same names of options; those that do not are listed with their own.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import transformers as hf
from torch import nn

from benchmarks.coverage.case import Case
from benchmarks.coverage.zoos.language import (
    DECODER,
    ENCODER,
    GROUPED,
    HEADS,
    HIDDEN,
    VOCABULARY,
    WIDTH,
    tokens,
)

Options = Mapping[str, Any]

_NARROW: Final[Options] = {"head_dim": 12}
_HALF_ROTARY: Final[Options] = {
    "rope_type": "default",
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.5,
}
_EXPERTS: Final[Options] = {
    "experts_implementation": "batched_mm",  # the default knows no float64
    "moe_intermediate_size": 40,
    "num_experts": 3,
    "num_experts_per_tok": 2,
}
_OF_GPT: Final[Options] = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": 2,
    "n_head": HEADS,
    "n_positions": 32,
    "use_cache": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_DECODERS: Final[Mapping[str, Options]] = {
    "Mistral": GROUPED,
    "Gemma": {**GROUPED, **_NARROW},
    "Gemma2": {**GROUPED, **_NARROW},
    "Granite": GROUPED,
    "Cohere": GROUPED,
    "Phi": DECODER,
    "Phi3": GROUPED,
    "Olmo": GROUPED,
    "Olmo2": GROUPED,
    "StableLm": {**GROUPED, "rope_parameters": _HALF_ROTARY},
    "Starcoder2": GROUPED,
    "SmolLM3": GROUPED,
    "Glm": {**GROUPED, **_NARROW},
    "Helium": {**GROUPED, **_NARROW},
    "Nemotron": GROUPED,
    "Persimmon": DECODER,
    "GPTNeoX": DECODER,
    "GPTJ": {**_OF_GPT, "rotary_dim": 6},
    "CodeGen": {**_OF_GPT, "n_ctx": 32, "rotary_dim": 6},
    "GPTBigCode": _OF_GPT,
    "BioGpt": {**DECODER, "pad_token_id": 1},
    "OPT": {
        **DECODER,
        "pad_token_id": 1,
        "ffn_dim": HIDDEN,
        "word_embed_proj_dim": WIDTH,
    },
    "Bloom": {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": 2}
    | {"n_head": HEADS, "use_cache": False},
    "Falcon": {**DECODER, "ffn_hidden_size": HIDDEN, "bos_token_id": 0}
    | {"eos_token_id": 0},
    "Mpt": {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_layers": 2}
    | {"n_heads": HEADS, "max_seq_len": 32, "use_cache": False},
    "Qwen3Moe": {**GROUPED, **_NARROW, **_EXPERTS, "mlp_only_layers": []},
    "Olmoe": {**GROUPED, **_EXPERTS},
}
_WORDS: Final[Options] = {**ENCODER, "vocab_size": VOCABULARY, "num_labels": 7}
_ENCODERS: Final[Mapping[str, Options]] = {
    "Roberta": {**_WORDS, "max_position_embeddings": 40},
    "XLMRoberta": {**_WORDS, "max_position_embeddings": 40},
    "Albert": {**_WORDS, "embedding_size": 24},
    "Electra": {**_WORDS, "embedding_size": 24},
    "DistilBert": {"vocab_size": VOCABULARY, "dim": WIDTH, "hidden_dim": HIDDEN}
    | {"n_layers": 2, "n_heads": HEADS, "num_labels": 7},
    "Deberta": _WORDS,
    "DebertaV2": _WORDS,
    "MPNet": {**_WORDS, "max_position_embeddings": 40},
    "ConvBert": {**_WORDS, "embedding_size": WIDTH},
    "FNet": {**_WORDS, "tpu_short_seq_length": 12, "max_position_embeddings": 32},
    "RoFormer": {**_WORDS, "embedding_size": WIDTH, "max_position_embeddings": 32},
    "MegatronBert": _WORDS,
    "ModernBert": {**_WORDS, "pad_token_id": 0, "max_position_embeddings": 32},
    "Esm": {**_WORDS, "pad_token_id": 1, "max_position_embeddings": 40},
    "SqueezeBert": {**_WORDS, "embedding_size": WIDTH},
    "Nystromformer": {**_WORDS, "segment_means_seq_len": 12, "num_landmarks": 4}
    | {"max_position_embeddings": 32},
}


def cases() -> Iterator[Case]:
    """One case per family."""
    for kinds, task in (
        (_DECODERS, "ForCausalLM"),
        (_ENCODERS, "ForSequenceClassification"),
    ):
        for family, options in kinds.items():
            build = functools.partial(_build, family, task, options)
            yield Case("transformers", family.lower(), build, tokens)


def _build(family: str, task: str, options: Options) -> nn.Module:
    config = getattr(hf, f"{family}Config")(**options)
    return getattr(hf, f"{family}{task}")(config)
