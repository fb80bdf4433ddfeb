"""Models of transformers, torchvision and qwen-tts, random and small, with the constants of the published configurations.

The constants here are copied from each model's published config.json, not from model_specs/, so that a wrong constant in a
spec is found. Sizes are those to which small_models.py cuts the spec.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import io
import os
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch  # noqa: E402
from torch.nn import Module  # noqa: E402

Inputs = Mapping[str, torch.Tensor]
Tensors = dict[str, torch.Tensor]


@dataclass
class Published:
    """A family: the spec of the library and the published code."""

    name: str
    spec: str  # A key of small_models.CUTS.
    make: Callable[[], Module]
    loss: Callable[[Module, Inputs], torch.Tensor] = lambda model, inputs: model(**inputs).loss
    dimensions: dict[str, float] = field(default_factory=dict)  # Those that differ from the cut's.
    upcasts: bool = True  # The code computes its loss from logits in fp32.
    gain: float = 2.0  # The gain of random weights. T5, which does not scale its scores, has large ones anyway.
    in_bf16: bool = True  # It runs in bf16 on CPU.
    is_folder: bool = True  # Its library reads config.json and the weights next to it.
    samples: Callable[[torch.Tensor, Inputs], Tensors] | None = None  # Makes samples from a text's token ids, for inputs of
                                                                      # these shapes.
    once: Callable[[Tensors], Tensors] | None = None  # Converts today's file to an earlier format, which the code also reads.


def _causal(kind: str, **options: Any) -> Callable[[], Module]:
    """A causal language model with the sizes of a cut and the constants of `options`."""

    def make() -> Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(
            attention_dropout=0.0, use_cache=False, **{"attn_implementation": "sdpa", **options})
        return getattr(transformers, f"{kind}ForCausalLM")(config)

    return make


_LLAMA = {"vocab_size": 257, "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
_QWEN3 = {"vocab_size": 131, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}


def _llama3_scaling(factor: float) -> dict[str, Any]:
    return {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}


def _gpt2() -> Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(
        vocab_size=131, n_positions=32, n_embd=48, n_layer=2, n_head=4, activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=1e-5, use_cache=False))


def _bert() -> Module:
    from transformers import BertConfig, BertForPreTraining

    return BertForPreTraining(BertConfig(
        vocab_size=131, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=72,
        hidden_act="gelu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=32,
        type_vocab_size=2, layer_norm_eps=1e-12))


def _t5() -> Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(
        vocab_size=131, d_model=32, d_kv=8, d_ff=72, num_layers=2, num_decoder_layers=2, num_heads=8,
        relative_attention_num_buckets=8, relative_attention_max_distance=128, dropout_rate=0.0,
        layer_norm_epsilon=1e-6, feed_forward_proj="relu", tie_word_embeddings=True, use_cache=False))


def _whisper() -> Module:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    return WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=131, num_mel_bins=16, d_model=40, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=72, decoder_ffn_dim=72, max_source_positions=24,
        max_target_positions=16, activation_function="gelu", dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, scale_embedding=False, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1))


def _vit() -> Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(image_size=48, patch_size=16, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=72,
                             num_classes=11)


def _resnet() -> Module:
    from torchvision.models.resnet import BasicBlock, ResNet

    class Narrow(ResNet):
        """The widths of the cut; torchvision's own are fixed."""

        inplanes = property(lambda self: self.__dict__["_inplanes"],
                            lambda self, width: self.__dict__.update(_inplanes=8 if width == 64 else width))

        def _make_layer(self, block: type, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> Module:
            return super()._make_layer(block, {64: 8, 128: 12, 256: 16, 512: 24}[planes], blocks, stride, dilate)

    model = Narrow(BasicBlock, [2, 2, 2, 2], num_classes=11)
    model.fc = torch.nn.Linear(24, 11)
    return model


def _qwen3_tts() -> Module:
    import transformers.utils.import_utils  # noqa: F401 Looks for audio packages, so it comes before the empty ones.

    # The model code imports these, and training does not call them.
    for name in ("librosa", "librosa.filters", "onnxruntime", "soundfile", "sox", "torchaudio", "torchaudio.compliance",
                 "torchaudio.compliance.kaldi"):
        module = sys.modules.setdefault(name, types.ModuleType(name))
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules["librosa.filters"].mel = None
    with contextlib.redirect_stdout(io.StringIO()):  # It prints that flash-attn is missing.
        from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
        from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration

    attention = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_code_groups": 4,
                 "rms_norm_eps": 1e-6, "rope_theta": 1000000}
    return Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(
        tts_model_type="base", tts_model_size="1b7", tokenizer_type="qwen3_tts_tokenizer_12hz",
        talker_config={
            **attention, "hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 3, "vocab_size": 67,
            "text_vocab_size": 131, "text_hidden_size": 32, "spk_id": {}, "codec_language_id": {}, "spk_is_dialect": {},
            "rope_scaling": {"interleaved": True, "mrope_section": [2, 1, 1], "rope_type": "default", "type": "default"},
            "code_predictor_config": {**attention, "hidden_size": 24, "intermediate_size": 67, "num_hidden_layers": 2,
                                      "vocab_size": 32}},
        speaker_encoder_config={"enc_dim": 32, "mel_dim": 8, "enc_channels": [16, 16, 16, 16, 48]}))


_FRAMES = 6  # Codec frames of half a second: floor(12.5 * 0.5).


def _sft_step(model: Module, inputs: Inputs) -> torch.Tensor:
    """The part of finetuning/sft_12hz.py of github.com/QwenLM/Qwen3-TTS at 022e286 between zero_grad and backward."""
    talker, ids, codes = model.talker, inputs["input_ids"], inputs["codec_ids"]
    speaker = model.speaker_encoder(inputs["ref_mels"].to(talker.codec_head.weight.dtype)).detach()
    text = talker.model.text_embedding(ids[:, :, 0]) * inputs["text_embedding_mask"]
    codec = talker.model.codec_embedding(ids[:, :, 1]) * inputs["codec_embedding_mask"]
    codec[:, 6, :] = speaker
    embedded = text + codec
    for group in range(1, codes.shape[2]):
        table = talker.code_predictor.get_input_embeddings()[group - 1]
        embedded = embedded + table(codes[:, :, group]) * inputs["codec_mask"].unsqueeze(-1)
    # The data set puts the frames before the end mark.
    frames = torch.zeros_like(inputs["codec_mask"])
    frames[:, -_FRAMES - 1:-1] = True
    outputs = talker(inputs_embeds=embedded[:, :-1], attention_mask=torch.ones_like(inputs["attention_mask"])[:, :-1],
                     labels=inputs["codec_0_labels"][:, 1:], output_hidden_states=True)
    hidden = outputs.hidden_states[0][-1]
    predictor_loss = talker.forward_sub_talker_finetune(codes[frames], hidden[frames[:, 1:]])[1]
    return outputs.loss + 0.3 * predictor_loss


def _classified(images: str) -> Callable[[Module, Inputs], torch.Tensor]:
    return lambda model, inputs: torch.nn.functional.cross_entropy(model(inputs[images]), inputs["labels"])


def _in_order(model: Module, inputs: Inputs) -> torch.Tensor:
    """Passes the decoder's own inputs, which the model would otherwise derive from the labels."""
    return model(**inputs, use_cache=False).loss


_MASK, _IGNORED = 130, -100  # An id that is no byte of a text.


def _masked(ids: torch.Tensor, share: float) -> torch.Tensor:
    """The hidden tokens, the same ones each time, and at least one of each row."""
    hidden = torch.rand(ids.shape, generator=torch.Generator().manual_seed(11)) < share
    hidden[:, ids.shape[1] // 3] = True
    return hidden


def _hidden_tokens(ids: torch.Tensor, inputs: Inputs) -> Tensors:
    """BERT's task: find 15 % of the tokens, and whether the second half of a row follows the first."""
    seq = inputs["input_ids"].shape[1]
    rows = ids[:len(ids) // seq * seq].view(-1, seq).clone()
    other = torch.arange(len(rows)) % 2
    second = slice(seq // 2, seq)
    rows[other == 1, second] = rows.roll(7, dims=0)[other == 1, second]
    hidden = _masked(rows, 0.15)
    kinds = torch.zeros_like(rows)
    kinds[:, second] = 1
    return {"input_ids": rows.masked_fill(hidden, _MASK), "token_type_ids": kinds,
            "labels": rows.masked_fill(~hidden, _IGNORED), "next_sentence_label": other}


def _restored_text(ids: torch.Tensor, inputs: Inputs) -> Tensors:
    """T5's task, simplified: the input is a text with hidden tokens, the output its beginning."""
    seq, target = inputs["input_ids"].shape[1], inputs["labels"].shape[1]
    rows = ids[:len(ids) // seq * seq].view(-1, seq)
    labels = rows[:, :target].contiguous()
    before = torch.cat([torch.zeros_like(labels[:, :1]), labels[:, :-1]], dim=1)
    return {"input_ids": rows.masked_fill(_masked(rows, 0.15), _MASK), "decoder_input_ids": before, "labels": labels}


def _with_frequencies(tensors: Tensors) -> Tensors:
    """As in Llama 2's first files: for every layer."""
    return {**tensors, **{f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(8) for i in range(2)}}


def _of_the_base(tensors: Tensors) -> Tensors:
    """As in openai-community/gpt2: names of GPT2Model, and the masks of its layers."""
    masks = {f"h.{i}.attn.{name}": torch.ones(shape) for i in range(2) for name, shape in
             (("bias", (1, 1, 32, 32)), ("masked_bias", ()))}
    return {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()} | masks


def _of_tensorflow(tensors: Tensors) -> Tensors:
    """As in google-bert/bert-base-uncased."""
    ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    found = {}
    for name, tensor in tensors.items():
        end = next((end for end in ends if name.endswith(end)), "")
        found[name.removesuffix(end) + ends.get(end, "")] = tensor
    return {**found, "bert.embeddings.position_ids": torch.arange(32).view(1, 32)}


def _with_unread_bias(tensors: Tensors) -> Tensors:
    """As in google-t5/t5-small."""
    return {**tensors, "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(8, 8)}


MODELS = [
    Published("Llama 2", "llama2_7b", _causal("Llama", **{**_LLAMA, "num_key_value_heads": 4}, rms_norm_eps=1e-5,
                                               rope_theta=10000.0), once=_with_frequencies),
    Published("Llama 3.1", "llama3_1_8b", _causal("Llama", **_LLAMA, rms_norm_eps=1e-5, rope_theta=500000.0,
                                                  rope_scaling=_llama3_scaling(8.0)), dimensions={"seq": 384}),
    Published("Llama 3.2", "llama3_2_1b", _causal("Llama", **_LLAMA, rms_norm_eps=1e-5, rope_theta=500000.0,
                                                  rope_scaling=_llama3_scaling(32.0), tie_word_embeddings=True),
              dimensions={"seq": 384}),
    Published("Qwen 2.5", "qwen2_5_7b", _causal("Qwen2", **_LLAMA, rms_norm_eps=1e-6, rope_theta=1000000.0,
                                                use_sliding_window=False)),
    Published("Qwen 3", "qwen3_0_6b", _causal("Qwen3", **_QWEN3, rms_norm_eps=1e-6, rope_theta=1000000.0,
                                              tie_word_embeddings=True)),
    Published("Mistral 0.1", "mistral_7b_v0_1", _causal("Mistral", **_LLAMA, rms_norm_eps=1e-5, rope_theta=10000.0,
                                                        sliding_window=64), dimensions={"seq": 96}),
    Published("Mistral 0.3", "mistral_7b_v0_3", _causal("Mistral", **_LLAMA, rms_norm_eps=1e-5, rope_theta=1000000.0,
                                                        sliding_window=None)),
    Published("Mixtral", "mixtral_8x7b",
              _causal("Mixtral", vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                      num_attention_heads=4, num_key_value_heads=4, head_dim=16, num_local_experts=4,
                      num_experts_per_tok=2, rms_norm_eps=1e-5, rope_theta=1000000.0, sliding_window=None,
                      output_router_logits=False)),
    Published("Qwen 3 MoE", "qwen3_30b_a3b",
              _causal("Qwen3Moe", **_QWEN3, moe_intermediate_size=48, num_experts=8, num_experts_per_tok=4,
                      norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6,
                      rope_theta=1000000.0, output_router_logits=False)),
    Published("Gemma 2", "gemma2_9b",
              _causal("Gemma2", vocab_size=131, hidden_size=32, intermediate_size=72, num_hidden_layers=2,
                      num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=6,
                      query_pre_attn_scalar=256, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
                      hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, rope_theta=10000.0,
                      tie_word_embeddings=True, attn_implementation="eager"), gain=10.0),
    Published("GPT-2", "gpt2", _gpt2, once=_of_the_base),
    Published("BERT", "bert_large", _bert, upcasts=False, samples=_hidden_tokens, once=_of_tensorflow),
    Published("T5", "t5_3b", _t5, _in_order, {"seq": 200, "target_seq": 150}, upcasts=False, gain=1.0,
              samples=_restored_text, once=_with_unread_bias),
    Published("Whisper", "whisper_large_v3", _whisper, _in_order, {"batch": 8, "target_seq": 16}, upcasts=False),
    Published("Qwen3-TTS", "qwen3_tts", _qwen3_tts, _sft_step, is_folder=False),
    Published("ViT", "vit_b_16", _vit, _classified("pixel_values"), upcasts=False, is_folder=False),
    Published("ResNet", "resnet18", _resnet, _classified("images"), upcasts=False, in_bf16=False,
              is_folder=False),
]
