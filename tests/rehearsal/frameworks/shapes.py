"""The tensors of the models that are rehearsed, written down from their published descriptions: what is applied is held
against these, and never against what a framework says of itself.

A model is a list of units (one per block, as an ordinary wrap policy forms them) and a root that has the rest; a unit is a
list of shapes. Tied weights are listed once. Total parameters are compared with published ones in frameworks_test.py.
"""

from __future__ import annotations

import dataclasses
import math

Shape = tuple[int, ...]


@dataclasses.dataclass
class Model:
    root: list[Shape]
    units: list[list[Shape]]
    frozen: list[Shape] = dataclasses.field(default_factory=list)  # in the root as well

    @property
    def tensors(self) -> int:
        return len(self.root) + sum(len(unit) for unit in self.units)

    @property
    def elements(self) -> int:
        return elements(self.root) + sum(elements(unit) for unit in self.units)

    @property
    def trainable(self) -> int:
        return self.elements - elements(self.frozen)


def elements(shapes: list[Shape]) -> int:
    return sum(math.prod(shape) for shape in shapes)


def padded(shapes: list[Shape], ranks: int) -> int:
    """Elements that FSDP2 communicates: it cuts dimension 0 in `ranks` equal parts, the last ones filled up."""
    return sum(-(-shape[0] // ranks) * ranks * math.prod(shape[1:]) for shape in shapes)


def _linear(out: int, inside: int, bias: bool = True) -> list[Shape]:
    return [(out, inside)] + [(out,)] * bias


def _norm(width: int) -> list[Shape]:
    return [(width,), (width,)]


def decoder(hidden: int, ffn: int, layers: int, heads: int, kv_heads: int, head_dim: int, vocabulary: int, tied: bool,
            qk_norm: bool = False) -> Model:
    """Llama, and Qwen3 with its norms on queries and keys."""
    q, kv = heads * head_dim, kv_heads * head_dim
    layer = [(q, hidden), (kv, hidden), (kv, hidden), (hidden, q), (ffn, hidden), (ffn, hidden), (hidden, ffn)]
    layer += [(hidden,), (hidden,)] + [(head_dim,), (head_dim,)] * qk_norm
    return Model([(vocabulary, hidden), (hidden,)] + [(vocabulary, hidden)] * (not tied), [layer] * layers)


def gpt2() -> Model:
    """Its linear layers are stored [in, out]."""
    width, layers, vocabulary, positions = 768, 12, 50257, 1024
    layer = _norm(width) * 2 + [(width, 3 * width), (3 * width,), (width, width), (width,)]
    layer += [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return Model([(vocabulary, width), (positions, width), *_norm(width)], [layer] * layers)


def _encoder_layer(width: int, ffn: int) -> list[Shape]:
    return _linear(width, width) * 4 + _linear(ffn, width) + _linear(width, ffn) + _norm(width) * 2


def bert_large() -> Model:
    """With the head of masked language modeling, whose matrix is the embedding."""
    width, vocabulary = 1024, 30522
    root = [(vocabulary, width), (512, width), (2, width), *_norm(width)]
    return Model(root + _linear(width, width) + _norm(width) + [(vocabulary,)], [_encoder_layer(width, 4096)] * 24)


def vit_large() -> Model:
    width, patch, labels = 1024, 16, 1000
    root = [(width, 3, patch, patch), (width,), (1, 1, width), (1, (224 // patch) ** 2 + 1, width), *_norm(width)]
    return Model(root + _linear(labels, width), [_encoder_layer(width, 4096)] * 24)


def t5_base() -> Model:
    width, ffn, heads, layers = 768, 3072, 12, 12
    attention = [(width, width)] * 4 + [(width,)]
    feed = [(ffn, width), (width, ffn), (width,)]
    position = [(32, heads)]  # only the first block of a stack has it
    encoder, decode = attention + feed, attention * 2 + feed
    units = [encoder + position] + [encoder] * (layers - 1) + [decode + position] + [decode] * (layers - 1)
    return Model([(32128, width), (width,), (width,)], units)


def whisper_small() -> Model:
    """Keys have no bias; the encoder's positions are fixed."""
    width, ffn, layers, mels = 768, 3072, 12, 80
    attention = _linear(width, width) * 3 + [(width, width)] + _norm(width)
    feed = _linear(ffn, width) + _linear(width, ffn) + _norm(width)
    fixed = [(1500, width)]
    root = [(width, mels, 3), (width,), (width, width, 3), (width,), *fixed, *_norm(width)]
    root += [(51865, width), (448, width), *_norm(width)]
    return Model(root, [attention + feed] * layers + [attention * 2 + feed] * layers, fixed)


def small_transformer() -> Model:
    """The scripts in ../scripts."""
    width, vocabulary = 256, 1024
    layer = _norm(width) * 2 + _linear(3 * width, width) + _linear(width, width)
    layer += _linear(4 * width, width) + _linear(width, 4 * width)
    return Model([(vocabulary, width), *_norm(width), (vocabulary, width)], [layer] * 4)


def lightning_model() -> Model:
    """12 of PyTorch's own encoder layers, between an embedding and a head."""
    width, vocabulary = 1024, 32000
    layer = _linear(3 * width, width) + _linear(width, width) + _linear(4 * width, width) + _linear(width, 4 * width)
    return Model([(vocabulary, width), *_linear(vocabulary, width)], [layer + _norm(width) * 2] * 12)


def qwen_tts() -> Model:
    """Qwen3-TTS-12Hz-1.7B-Base without what gets no gradient; the units are the talker's and the predictor's layers."""
    talker = decoder(2048, 6144, 28, 16, 8, 128, 151936, tied=True, qk_norm=True)
    predictor = decoder(1024, 3072, 5, 16, 8, 128, 2048, tied=True, qk_norm=True)
    tables = [(3072, 2048)] + [(2048, 2048)] * 15
    heads = [(3072, 2048)] + [(2048, 1024)] * 15
    root = talker.root + tables + heads + [(1024,)] + _linear(1024, 2048)
    return Model(root, talker.units + predictor.units)


LLAMA_1B = decoder(2048, 8192, 16, 32, 8, 64, 128256, tied=True)
LLAMA_8B = decoder(4096, 14336, 32, 32, 8, 128, 128256, tied=False)
LLAMA_70B = decoder(8192, 28672, 80, 64, 8, 128, 128256, tied=False)
QWEN3_06B = decoder(1024, 3072, 28, 16, 8, 128, 151936, tied=True, qk_norm=True)
SMOLLM2_135M = decoder(576, 1536, 30, 9, 3, 64, 49152, tied=True)

# Totals that others have published, and where.
PUBLISHED = {
    "Llama-3.2-1B": (LLAMA_1B, 1_235_814_400, "its model card: 1.24B; transformers num_parameters"),
    "Llama-3.1-8B": (LLAMA_8B, 8_030_261_248, "the index of its checkpoint: 16,060,522,496 bytes of bf16"),
    "Llama-3.1-70B": (LLAMA_70B, 70_553_706_496, "the index of its checkpoint: 141,107,412,992 bytes of bf16"),
    "Qwen3-0.6B": (QWEN3_06B, 596_049_920, "its checkpoint less the head that it stores again"),
    "SmolLM2-135M": (SMOLLM2_135M, 134_515_008, "its model card: 134,515,008 parameters"),
    "GPT-2": (gpt2(), 124_439_808, "124M"),
    "BERT-large": (bert_large(), 335_174_458, "335,141,888 with the pooler instead of the head"),
    "ViT-L/16": (vit_large(), 304_326_632, "torchvision, num_params of ViT_L_16_Weights"),
    "T5-base": (t5_base(), 222_903_552, "223M"),
    "Whisper-small": (whisper_small(), 241_734_912, "242M"),
    "Qwen3-TTS-1.7B": (qwen_tts(), 1_908_283_648, "docs/models/qwen3_tts.md: what receives a gradient"),
}
