"""The transformers architectures, with tiny random configurations."""

import functools
from collections.abc import Callable, Iterator

import torch
import transformers as hf
from torch import nn

from benchmarks.coverage.case import Case, Inputs
from benchmarks.coverage.zoos.images import image

VOCABULARY, TOKENS, WIDTH, HEADS, HIDDEN = 97, 12, 48, 4, 80
DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 32,
    "use_cache": False,
    "pad_token_id": None,
}
GROUPED = DECODER | {"num_key_value_heads": 2}
ENCODER = {
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
}


def cases() -> Iterator[Case]:
    """One case per architecture, two layers deep."""
    for name, (build, inputs) in _architectures().items():
        yield Case("transformers", name, build, inputs)


def _architectures() -> dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]]:
    return {
        "bert": (_make(hf.BertForSequenceClassification, _bert()), tokens),
        "gpt2": (_make(hf.GPT2LMHeadModel, _gpt2()), tokens),
        "llama2": (_make(hf.LlamaForCausalLM, hf.LlamaConfig(**DECODER)), tokens),
        "llama3": (_make(hf.LlamaForCausalLM, hf.LlamaConfig(**GROUPED)), tokens),
        "qwen2": (_make(hf.Qwen2ForCausalLM, hf.Qwen2Config(**GROUPED)), tokens),
        "qwen3": (_make(hf.Qwen3ForCausalLM, _qwen3()), tokens),
        "mixtral": (_make(hf.MixtralForCausalLM, _mixtral()), tokens),
        "vit": (_make(hf.ViTForImageClassification, _vit()), image(32)),
        "t5": (_make(hf.T5ForConditionalGeneration, _t5()), source_and_target),
        "whisper": (_make(hf.WhisperForConditionalGeneration, _whisper()), speech),
    }


def _make(model: type[nn.Module], config: object) -> Callable[[], nn.Module]:
    return functools.partial(model, config)


def _bert() -> hf.BertConfig:
    return hf.BertConfig(**ENCODER, vocab_size=VOCABULARY, num_labels=7)


def _gpt2() -> hf.GPT2Config:
    return hf.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=WIDTH,
        n_layer=2,
        n_head=HEADS,
        n_positions=32,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )


def _qwen3() -> hf.Qwen3Config:
    return hf.Qwen3Config(**GROUPED, head_dim=12)


def _mixtral() -> hf.MixtralConfig:
    return hf.MixtralConfig(
        **GROUPED,
        num_local_experts=3,
        num_experts_per_tok=2,
        experts_implementation="batched_mm",  # the default knows no float64
    )


def _vit() -> hf.ViTConfig:
    return hf.ViTConfig(**ENCODER, image_size=32, patch_size=8, num_labels=7)


def _t5() -> hf.T5Config:
    return hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=12,
        d_ff=HIDDEN,
        num_layers=2,
        num_heads=HEADS,
        use_cache=False,
    )


def _whisper() -> hf.WhisperConfig:
    return hf.WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN,
        max_source_positions=16,
        max_target_positions=16,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
    )


def tokens() -> Inputs:
    """Two random sentences."""
    generator = torch.Generator().manual_seed(1)
    return (torch.randint(1, VOCABULARY, (2, TOKENS), generator=generator),)


def source_and_target() -> Inputs:
    """Sentences for an encoder, its attention mask, sentences for a decoder."""
    (source,) = tokens()
    return source, torch.ones_like(source), source.flip(1)


def speech() -> Inputs:
    """Two random spectrograms, their attention mask, sentences for a decoder."""
    generator = torch.Generator().manual_seed(1)
    sound = torch.randn((2, 8, 32), generator=generator, dtype=torch.float64)
    (target,) = tokens()
    return sound, torch.ones(2, 32, dtype=torch.long), target
