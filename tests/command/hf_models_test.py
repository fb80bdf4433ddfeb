"""Folders of Hugging Face, held against the models that transformers makes of them.

    hf_models_test.py FSDP_PLAN      run by a Python that has torch and transformers; no GPU, no network

Configurations are written by save_pretrained. What `fsdp-plan models FOLDER --expanded` says of them must be what
transformers builds: the parameters' names, order, shapes, dtypes and ties. And it must compute the same: with the same weights
and data, the runner of rehearsals gives the loss and the gradients of the real model, so that no key that changes a value is
passed over. A translated config.json of a published model predicts what its shipped spec predicts, byte by byte.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "support"), str(pathlib.Path(__file__).parent)]

try:
    import torch
    import transformers
except ImportError:
    print("skipped: transformers is not installed; ./scripts/bootstrap --with rehearsal installs it")
    sys.exit(77)

import torch.nn.functional as F  # noqa: E402
from command import Refused, answer, run  # noqa: E402
from hf_vision_families import of_encoders, of_vision_models  # noqa: E402
from fsdp_plan_runner import kernels  # noqa: E402
from fsdp_plan_runner.expanded_model import ExpandedModel  # noqa: E402
from fsdp_plan_runner.modules import build_model  # noqa: E402
from fsdp_plan_runner.plan import Implementations  # noqa: E402
from fsdp_plan_runner.training import Batch, run_forward  # noqa: E402
from hf_decoders_of_2025 import DECODERS  # noqa: E402

transformers.logging.set_verbosity_error()
# transformers 5.24.0 reads an attribute that no output of Llama 4's decoder has, when all is computed.
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None

VERSION = int(transformers.__version__.partition(".")[0])
# What a folder says whose experts are modules, as only transformers 4 makes them.
MODULES = (f"config.json was written by transformers {transformers.__version__}: each expert is a module of its own. transformers 5 "
           'stacks the experts; write "transformers_version": "5.0.0" into the file to plan that.')
SMALL = {"vocab_size": 99, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
         "num_key_value_heads": 2}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
SMALL_MOE = {**SMALL, "num_experts_per_tok": 2}
SMALL_LATENT = {**SMALL_MOE, "num_key_value_heads": 6, "n_routed_experts": 8, "moe_intermediate_size": 24, "kv_lora_rank": 10,
                "q_lora_rank": 14, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
SMALL_GPT2 = {"vocab_size": 99, "n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 40, "resid_pdrop": 0.0,
              "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SMALL_BERT = {"vocab_size": 99, "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 3,
              "intermediate_size": 80, "max_position_embeddings": 40, "hidden_dropout_prob": 0.0,
              "attention_probs_dropout_prob": 0.0}
SMALL_T5 = {"vocab_size": 99, "d_model": 48, "d_kv": 8, "d_ff": 80, "num_layers": 3, "num_heads": 4, "dropout_rate": 0.0}
SMALL_WHISPER = {"vocab_size": 99, "num_mel_bins": 20, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3,
                 "encoder_attention_heads": 4, "decoder_attention_heads": 6, "encoder_ffn_dim": 80, "decoder_ffn_dim": 64,
                 "max_source_positions": 30, "max_target_positions": 20, "pad_token_id": 5, "bos_token_id": 1,
                 "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None,
                 "begin_suppress_tokens": None}
SMALL_VIT = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80, "image_size": 32,
             "patch_size": 8}


@dataclasses.dataclass(frozen=True)
class Family:
    """Classes of transformers, and configurations of them."""

    config: str
    model: str
    small: tuple[dict[str, Any], ...]  # Are computed with, beside the defaults.
    large: tuple[dict[str, Any], ...] = ()  # Are only expanded.
    attention: str = "sdpa"
    has_defaults: bool = True  # A configuration without keys has heads of a width that divides.
    versions: tuple[int, ...] = (4, 5)  # Major versions of transformers that build what is planned, with modules of the same names.


FAMILIES = {
    "llama": Family("LlamaConfig", "LlamaForCausalLM", (
        {**SMALL}, {**SMALL, "num_key_value_heads": None, "tie_word_embeddings": True, "attention_bias": True},
        {**SMALL, "head_dim": 10, "mlp_bias": True, "rms_norm_eps": 1e-3, "rope_theta": 500.0},
        {**SMALL, "rope_scaling": LLAMA3, "rope_theta": 5e5, "pad_token_id": 7},
        {**SMALL, "hidden_act": "gelu_pytorch_tanh", "pad_token_id": -1}),
        ({"dtype": "bfloat16", "num_key_value_heads": 8}, {"dtype": "float16", "vocab_size": 32003})),
    "mistral": Family("MistralConfig", "MistralForCausalLM", (
        {**SMALL, "sliding_window": 5}, {**SMALL, "sliding_window": None, "head_dim": 16, "tie_word_embeddings": True}),
        ({"dtype": "bfloat16"},)),
    "qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", (
        {**SMALL}, {**SMALL, "tie_word_embeddings": True, "head_dim": 16},
        {**SMALL, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        {**SMALL, "use_sliding_window": True, "sliding_window": 3,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", (
        {**SMALL, "head_dim": 16}, {**SMALL, "attention_bias": True, "tie_word_embeddings": True, "rope_theta": 1e6},
        {**SMALL, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}),
        ({"dtype": "bfloat16", "num_key_value_heads": 8, "intermediate_size": 12288},)),
    "qwen3_moe": Family("Qwen3MoeConfig", "Qwen3MoeForCausalLM", (
        {**SMALL_MOE, "num_experts": 6, "moe_intermediate_size": 24, "norm_topk_prob": True},
        {**SMALL_MOE, "num_experts": 4, "moe_intermediate_size": 24, "head_dim": 16, "mlp_only_layers": [1],
         "attention_bias": True},
        {**SMALL_MOE, "num_experts": 4, "moe_intermediate_size": 24, "decoder_sparse_step": 2, "tie_word_embeddings": True},
        {**SMALL_MOE, "num_experts": 4, "decoder_sparse_step": 4, "use_sliding_window": True, "sliding_window": 4}), versions=(4,)),
    "mixtral": Family("MixtralConfig", "MixtralForCausalLM", (
        {**SMALL_MOE, "num_local_experts": 4}, {**SMALL_MOE, "num_local_experts": 3, "sliding_window": 4, "head_dim": 16,
                                                "tie_word_embeddings": True}), versions=(4,)),
    "qwen3_moe_stacked": Family("Qwen3MoeConfig", "Qwen3MoeForCausalLM", (
        {**SMALL_MOE, "num_experts": 6, "moe_intermediate_size": 24, "norm_topk_prob": True},
        {**SMALL_MOE, "num_experts": 4, "moe_intermediate_size": 24, "head_dim": 16, "mlp_only_layers": [1],
         "attention_bias": True}), versions=(5,)),
    "mixtral_stacked": Family("MixtralConfig", "MixtralForCausalLM", (
        {**SMALL_MOE, "num_local_experts": 4}, {**SMALL_MOE, "num_local_experts": 3, "sliding_window": 4, "head_dim": 16,
                                                "tie_word_embeddings": True}), versions=(5,)),
    "glm4_moe": Family("Glm4MoeConfig", "Glm4MoeForCausalLM", (
        {**SMALL_MOE, "head_dim": 16, "n_routed_experts": 4, "moe_intermediate_size": 24},
        {**SMALL_MOE, "head_dim": 16, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "n_shared_experts": 2,
         "moe_intermediate_size": 24, "attention_bias": True, "use_qk_norm": True, "routed_scaling_factor": 2.5,
         "norm_topk_prob": False, "first_k_dense_replace": 2, "tie_word_embeddings": True}), versions=(5,),
        has_defaults=False),
    "gpt_oss": Family("GptOssConfig", "GptOssForCausalLM", (
        {**SMALL_MOE, "head_dim": 16, "num_local_experts": 4, "sliding_window": 4, "swiglu_limit": 0.05},
        {**SMALL_MOE, "head_dim": 8, "num_local_experts": 3, "sliding_window": 5, "attention_bias": False,
         "layer_types": ["full_attention", "sliding_attention", "full_attention"], "rope_scaling": YARN,
         "tie_word_embeddings": True, "swiglu_alpha": 1.5}), attention="eager", versions=(5,)),
    "deepseek_v3": Family("DeepseekV3Config", "DeepseekV3ForCausalLM", (
        {**SMALL_LATENT, "n_group": 2, "topk_group": 1},
        {**SMALL_LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "n_shared_experts": 2, "rope_interleave": False,
         "attention_bias": True, "norm_topk_prob": False, "first_k_dense_replace": 2, "tie_word_embeddings": True,
         "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}}), versions=(5,)),
    "deepseek_v2": Family("DeepseekV2Config", "DeepseekV2ForCausalLM", (
        {**SMALL_LATENT}, {**SMALL_LATENT, "topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1,
                           "q_lora_rank": None, "mlp_bias": True, "attention_bias": True, "first_k_dense_replace": 2,
                           "rope_scaling": {**YARN, "mscale": 0.8, "mscale_all_dim": 0.7}}), versions=(5,), has_defaults=False),
    "glm4_moe_lite": Family("Glm4MoeLiteConfig", "Glm4MoeLiteForCausalLM", (
        {**SMALL_LATENT, "n_group": 2, "topk_group": 1},
        {**SMALL_LATENT, "mlp_layer_types": ["dense", "sparse", "dense"], "routed_scaling_factor": 1.5}), versions=(5,)),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", (
        {**SMALL, "head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 12, "pad_token_id": 3},
        {**SMALL, "head_dim": 8, "tie_word_embeddings": False, "final_logit_softcapping": None,
         "attn_logit_softcapping": None, "attention_bias": True,
         "layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 5}),
        attention="eager"),
    "smollm3": Family("SmolLM3Config", "SmolLM3ForCausalLM", (
        {**SMALL, "pad_token_id": 3, "no_rope_layer_interval": 2},
        {**SMALL, "pad_token_id": 3, "no_rope_layers": [0, 1, 1], "use_sliding_window": True, "sliding_window": 4,
         "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}),
        ({"dtype": "bfloat16"},)),
    "phi3": Family("Phi3Config", "Phi3ForCausalLM", (
        {**SMALL, "pad_token_id": 3},
        {**SMALL, "pad_token_id": 3, "partial_rotary_factor": 0.5, "sliding_window": 5, "tie_word_embeddings": True}),
        ({"dtype": "bfloat16", "num_key_value_heads": 8},)),
    "olmo2": Family("Olmo2Config", "Olmo2ForCausalLM", (
        {**SMALL}, {**SMALL, "attention_bias": True, "tie_word_embeddings": True, "rope_theta": 500.0})),
    "olmo3": Family("Olmo3Config", "Olmo3ForCausalLM", (
        {**SMALL, "sliding_window": 4, "num_hidden_layers": 4},
        {**SMALL, "sliding_window": 5, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
         "max_position_embeddings": 64, "rope_scaling": YARN}), versions=(4,)),
    "gemma3": Family("Gemma3TextConfig", "Gemma3ForCausalLM", (
        {**SMALL, "head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 12, "pad_token_id": 3},
        {**SMALL, "head_dim": 8, "tie_word_embeddings": False, "attention_bias": True, "rope_local_base_freq": 500.0,
         "layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 5,
         "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        ({"dtype": "bfloat16"},), versions=(4,)),
    "gemma": Family("GemmaConfig", "GemmaForCausalLM", (
        {**SMALL, "head_dim": 16, "pad_token_id": 3},
        {**SMALL, "head_dim": 8, "tie_word_embeddings": False, "attention_bias": True, "hidden_act": "silu"})),
    "seed_oss": Family("SeedOssConfig", "SeedOssForCausalLM", (
        {**SMALL, "head_dim": 16, "attention_dropout": 0.0, "residual_dropout": 0.0},
        {**SMALL, "head_dim": 8, "attention_dropout": 0.0, "residual_dropout": 0.0, "attention_bias": False,
         "attention_out_bias": True, "mlp_bias": True}), ({"dtype": "bfloat16"},)),
    "exaone4": Family("Exaone4Config", "Exaone4ForCausalLM", (
        {**SMALL, "sliding_window": 4, "num_hidden_layers": 4},
        {**SMALL, "sliding_window": None, "layer_types": ["full_attention"] * 3, "tie_word_embeddings": True},
        {**SMALL, "sliding_window": 5, "sliding_window_pattern": 2})),
    "glm": Family("GlmConfig", "GlmForCausalLM", (
        {**SMALL, "head_dim": 16, "pad_token_id": 3},
        {**SMALL, "head_dim": 8, "attention_bias": False, "partial_rotary_factor": 0.25, "pad_token_id": 3})),
    "glm4": Family("Glm4Config", "Glm4ForCausalLM", (
        {**SMALL, "head_dim": 16, "pad_token_id": 3},
        {**SMALL, "head_dim": 8, "attention_bias": False, "partial_rotary_factor": 1.0, "pad_token_id": 3})),
    "granite": Family("GraniteConfig", "GraniteForCausalLM", (
        {**SMALL}, {**SMALL, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0,
                    "attention_multiplier": 0.125, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True})),
    "gpt2": Family("GPT2Config", "GPT2LMHeadModel", (
        {**SMALL_GPT2}, {**SMALL_GPT2, "n_inner": 100, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3}),
        ({"resid_pdrop": 0.2, "attn_pdrop": 0.0, "n_positions": 2048},)),
    "bert_masked": Family("BertConfig", "BertForMaskedLM", (
        {**SMALL_BERT}, {**SMALL_BERT, "tie_word_embeddings": False, "type_vocab_size": 3, "pad_token_id": 4}), versions=(4,)),
    "bert_pretraining": Family("BertConfig", "BertForPreTraining", ({**SMALL_BERT, "layer_norm_eps": 1e-3},), versions=(4,)),
    "t5": Family("T5Config", "T5ForConditionalGeneration", (
        {**SMALL_T5}, {**SMALL_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 2},
        {**SMALL_T5, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}),
        ({"dropout_rate": 0.2, "d_model": 1024},), attention="eager", versions=(4,)),
    "whisper": Family("WhisperConfig", "WhisperForConditionalGeneration", (
        {**SMALL_WHISPER}, {**SMALL_WHISPER, "tie_word_embeddings": False})),
    "vit": Family("ViTConfig", "ViTForImageClassification", (
        {**SMALL_VIT}, {**SMALL_VIT, "num_labels": 7, "num_channels": 1, "layer_norm_eps": 1e-3}),
        ({"hidden_dropout_prob": 0.1, "num_labels": 1000, "image_size": 384},), versions=(4,)),
}
FAMILIES |= {name: Family(**given) for name, given in DECODERS.items()}

FAMILIES |= {name: Family(*given, has_defaults=False, versions=(5,)) for name, given in of_vision_models(SMALL).items()}
FAMILIES |= {name: Family(*given, versions=(5,)) for name, given in of_encoders(SMALL_BERT).items()}


def families() -> dict[str, Family]:
    return {name: family for name, family in FAMILIES.items() if VERSION in family.versions}


def save(family: Family, sizes: dict[str, Any], folder: pathlib.Path) -> Any:
    config = getattr(transformers, family.config)(**sizes)
    config.architectures = [family.model]
    config.save_pretrained(folder)
    return config


def expand(folder: pathlib.Path, *words: str) -> dict[str, Any]:
    return answer(PROGRAM, "models", folder, "--expanded", *words)


def parameters_of(model: torch.nn.Module, dtype: str) -> list[tuple[str, tuple[int, ...], str, str | None]]:
    """Name, shape, dtype and what it is tied to. A module under two names stands under the first."""
    first: dict[int, str] = {}
    found = []
    for module_name, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            full = f"{module_name}.{name}" if module_name else name
            tied = first.get(id(parameter))
            first.setdefault(id(parameter), full)
            found.append((full, tuple(parameter.shape), dtype, tied))
    return found


def expanded_parameters(model: dict[str, Any]) -> list[tuple[str, tuple[int, ...], str, str | None]]:
    return [(p["name"], tuple(p["shape"]), p["dtype"], p.get("tied_to")) for p in model["parameters"]]


def experts_by_value(op: Any, context: Any, inputs: Any, parameters: Any) -> torch.Tensor:
    """The runner spreads tokens evenly, since a stub has no values; here each goes where its router says."""
    x, weights, chosen = inputs
    result = torch.zeros_like(x)
    mask = F.one_hot(chosen, num_classes=op.attributes["num_experts"]).permute(2, 1, 0)
    for e in range(op.attributes["num_experts"]):
        slots, rows = torch.where(mask[e])
        gate, up, down = parameters[3 * e:3 * e + 3]
        out = F.linear(F.silu(F.linear(x[rows], gate)) * F.linear(x[rows], up), down) * weights[rows, slots, None]
        result.index_add_(0, rows, out)
    return result


def planned_model(model: ExpandedModel, real: torch.nn.Module) -> Any:
    """The plan's model with the weights of the real one."""
    made = build_model(model, Implementations(), torch.float32, torch.device("cpu"), torch.device("cpu"))
    made.context.buffers.clear()  # Frequencies come from the plan's own attributes.
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(real.get_parameter(name))
    return made


class Folders(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "model"

    def check_parameters(self, family: Family, sizes: dict[str, Any]) -> None:
        config = save(family, sizes, self.folder)
        with torch.device("meta"):
            model = getattr(transformers, family.model)(config)
        dtype = sizes.get("dtype", "float32")
        said = expand(self.folder)
        self.assertEqual(expanded_parameters(said), parameters_of(model, dtype), sizes)
        buffers = {name for name, _ in model.named_buffers()}
        # Transformers keeps a second copy of the rotary table.
        buffers = {name for name in buffers if not name.endswith("original_inv_freq")}
        self.assertLessEqual({b["name"] for b in said["buffers"]}, buffers, sizes)
        frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
        self.assertEqual({p["name"] for p in said["parameters"] if not p["trainable"]}, frozen, sizes)

    def check_absent_keys(self, family: Family, sizes: dict[str, Any]) -> None:
        """save_pretrained writes every key; what is not written has the default of the class."""
        config = save(family, sizes, self.folder)
        whole = expand(self.folder)
        given = {"model_type": config.model_type, "architectures": [family.model],
                 "transformers_version": transformers.__version__, **sizes}
        (self.folder / "config.json").write_text(json.dumps(given), encoding="utf-8")
        self.assertEqual(expand(self.folder), whole)

    def check_values(self, family: Family, sizes: dict[str, Any]) -> None:
        """The loss and every gradient, of the real model and of the plan's."""
        config = save(family, sizes, self.folder)
        torch.manual_seed(0)
        real = getattr(transformers, family.model)._from_config(config, attn_implementation=family.attention)
        with torch.no_grad():
            for parameter in real.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.05)  # Norms and biases begin as 1 and 0.
        words = ["--batch", "2"]
        dimensions = expand(self.folder)["dimensions"]
        for name, value in {"seq": 12, "target_seq": 9}.items():
            if name in dimensions:
                words += ["--set", f"{name}={value}"]
        model = ExpandedModel(expand(self.folder, *words))
        batch = Batch(model, torch.float32, torch.device("cpu"))
        batch.load()
        named = {}
        vocabulary = sizes.get("text_config", sizes).get("vocab_size", 2)
        for place, tensor in enumerate(model.inputs):
            value, name = batch.values[place], model.tensors[tensor].name
            if not value.dtype.is_floating_point:
                classes = {"labels": sizes["num_labels"]} if "num_labels" in sizes else {}
                limit = {"token_type_ids": 2, "next_sentence_label": 2, **classes}.get(name, vocabulary)
                # RoBERTa gives tokens of padding, 1, no position.
                value = torch.randint(2 if name == "input_ids" and limit > 2 else 0, limit, value.shape)
            batch.values[place] = named[name] = value
        if "pad_token_id" in sizes and "input_ids" in named:
            named["input_ids"][0, :4] = sizes["pad_token_id"] % sizes["vocab_size"]
        before = kernels.KERNELS["experts"]
        kernels.KERNELS["experts"] = experts_by_value
        try:
            planned = planned_model(model, real)
            loss = run_forward(planned, batch.values)
        finally:
            kernels.KERNELS["experts"] = before
        loss.backward()
        real.train()
        real.config.use_cache = False
        expected = real(**named).loss
        expected.backward()
        self.assertAlmostEqual(loss.item(), expected.item(), delta=2e-5 * abs(expected.item()), msg=str(sizes))
        for name, parameter in planned.named_parameters():
            wanted = real.get_parameter(name).grad
            got = parameter.grad
            if wanted is None or got is None:
                self.assertTrue(wanted is None or not wanted.any(), name)
                self.assertTrue(got is None or not got.any(), name)
                continue
            torch.testing.assert_close(got, wanted, rtol=2e-3, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")


class Weights(unittest.TestCase):
    """safetensors files beside config.json, as save_pretrained writes them."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "model"

    def save(self, family: Family, sizes: dict[str, Any], **options: Any) -> torch.nn.Module:
        model = getattr(transformers, family.model)(save(family, sizes, self.folder))
        model.save_pretrained(self.folder, **options)
        return model

    def change(self, **keys: Any) -> None:
        path = self.folder / "config.json"
        config = {**json.loads(path.read_text(encoding="utf-8")), **keys}
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}), encoding="utf-8")

    def notes(self) -> list[str]:
        return [note for note in expand(self.folder)["notes"] if note.startswith("config.json")]

    def test_weights_of_every_family_match_the_model(self) -> None:
        for name, family in families().items():
            for sizes in family.small:
                sizes = {**sizes, "pad_token_id": abs(sizes.get("pad_token_id", 0))}  # Generation has none below 0.
                for options in ({}, {"max_shard_size": "20KB"}):
                    with self.subTest(name, **sizes), tempfile.TemporaryDirectory() as folder:
                        self.folder = pathlib.Path(folder)
                        self.save(family, sizes, **options)
                        self.assertEqual((self.folder / "model.safetensors.index.json").exists(), bool(options))
                        self.assertEqual(self.notes(), [MODULES] if name in ("mixtral", "qwen3_moe") else [])

    def test_weights_of_the_base_model_are_recognized(self) -> None:
        family = FAMILIES["gpt2"]
        model = self.save(family, family.small[0])
        model.transformer.save_pretrained(self.folder)
        self.change(architectures=[family.model])
        self.assertEqual(self.notes(), [])

    def test_another_shape_is_an_error(self) -> None:
        self.save(FAMILIES["llama"], SMALL)
        self.change(vocab_size=100)
        with self.assertRaisesRegex(Refused, r"model\.safetensors: \"lm_head\.weight\" is \[99, 48\], and the model of "
                                             r"config\.json has \[100, 48\]"):
            expand(self.folder)

    def test_other_names_are_noted(self) -> None:
        self.save(FAMILIES["llama"], SMALL)
        self.change(num_hidden_layers=2)
        self.assertRegex(self.notes()[0], r"without 9 tensors of the weights, .*: model\.layers\.2\.input_layernorm\.weight")
        self.change(num_hidden_layers=4)
        self.assertRegex(self.notes()[0], r"with 9 parameters that the weights lack, .*: model\.layers\.3\.self_attn")

    def test_dtype_defaults_to_that_of_the_weights(self) -> None:
        self.save(FAMILIES["llama"], {**SMALL, "dtype": "bfloat16"})
        self.change(dtype=..., torch_dtype=...)
        with torch.no_grad():
            weights = transformers.LlamaForCausalLM.from_pretrained(self.folder, dtype="auto")
        self.assertEqual(expand(self.folder)["parameters"][0]["dtype"], str(weights.dtype).removeprefix("torch."))
        self.change(dtype="float16")
        self.assertEqual(expand(self.folder)["parameters"][0]["dtype"], "float16")
        self.assertRegex(self.notes()[0], "has float16, but the weights are (float32|bfloat16): the plan uses float16")

    def test_missing_weights_are_noted(self) -> None:
        self.save(FAMILIES["llama"], SMALL, max_shard_size="20KB")
        first = next(iter(sorted(self.folder.glob("model-*.safetensors"))))
        first.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12\n", encoding="utf-8")
        self.assertRegex(self.notes()[0], "^config.json was not compared with the weights")
        first.unlink()
        self.assertRegex(self.notes()[0], "^config.json was not compared with the weights")

    def test_weights_of_another_model_are_an_error(self) -> None:
        self.save(FAMILIES["gpt2"], SMALL_GPT2)
        save(FAMILIES["llama"], SMALL, self.folder)
        with self.assertRaisesRegex(Refused, "No tensor belongs to a LlamaForCausalLM"):
            expand(self.folder)


LLAMA_31 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3"}


def _llama(hidden: int, inner: int, layers: int, heads: int, kv: int, **more: Any) -> dict[str, Any]:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "bos_token_id": 128000,
            "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": hidden, "intermediate_size": inner,
            "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": heads, "num_hidden_layers": layers,
            "num_key_value_heads": kv, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": LLAMA_31,
            "rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 128256, **more}


def _mistral(**more: Any) -> dict[str, Any]:
    return {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096,
            "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
            "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 32000, **more}


def _qwen3(hidden: int, inner: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": hidden, "intermediate_size": inner, "max_position_embeddings": 40960,
            "max_window_layers": layers, "num_attention_heads": heads, "num_hidden_layers": layers,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
            "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "use_sliding_window": False, "vocab_size": 151936, **more}


def _qwen2(hidden: int, inner: int, layers: int, heads: int, shared: int, **more: Any) -> dict[str, Any]:
    return {**_qwen3(hidden, inner, layers, heads), "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
            "num_key_value_heads": shared, "vocab_size": 152064, "use_mrope": False, "sliding_window": 131072, **more}


def _gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "embd_pdrop": 0.1,
            "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": width, "n_head": heads,
            "n_layer": layers, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None,
            "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
            "summary_use_proj": True, "vocab_size": 50257}


# What the hub has of the shipped models, as far as their own sources state it.
PUBLISHED: dict[str, dict[str, Any]] = {
    # Its file says float16, which the spec does not follow.
    "llama2_7b": _llama(4096, 11008, 32, 32, 32, rope_scaling=None, rope_theta=10000.0, vocab_size=32000,
                        max_position_embeddings=4096),
    "llama3_1_8b": _llama(4096, 14336, 32, 32, 8),
    "llama3_1_70b": _llama(8192, 28672, 80, 64, 8),
    "llama3_8b": _llama(4096, 14336, 32, 32, 8, rope_scaling=None, max_position_embeddings=8192),
    "llama3_70b": _llama(8192, 28672, 80, 64, 8, rope_scaling=None, max_position_embeddings=8192),
    "llama3_3_70b": _llama(8192, 28672, 80, 64, 8),
    "llama3_1_405b": _llama(16384, 53248, 126, 128, 8),
    "llama3_2_1b": _llama(2048, 8192, 16, 32, 8, head_dim=64, tie_word_embeddings=True,
                          rope_scaling={**LLAMA_31, "factor": 32.0}),
    "llama3_2_3b": _llama(3072, 8192, 28, 24, 8, head_dim=128, tie_word_embeddings=True,
                          rope_scaling={**LLAMA_31, "factor": 32.0}),
    "mistral_7b_v0_1": _mistral(),
    "mistral_7b_v0_3": _mistral(vocab_size=32768, rope_theta=1000000.0, sliding_window=None),
    "mixtral_8x7b": {**_mistral(rope_theta=1000000.0, sliding_window=None), "architectures": ["MixtralForCausalLM"],
                     "model_type": "mixtral", "num_experts_per_tok": 2, "num_local_experts": 8,
                     "output_router_logits": False, "router_aux_loss_coef": 0.02},
    "qwen2_5_0_5b": _qwen2(896, 4864, 24, 14, 2, head_dim=64, vocab_size=151936, tie_word_embeddings=True),
    "qwen2_5_1_5b": _qwen2(1536, 8960, 28, 12, 2, vocab_size=151936, tie_word_embeddings=True),
    "qwen2_5_3b": _qwen2(2048, 11008, 36, 16, 2, vocab_size=151936, tie_word_embeddings=True),
    "qwen2_5_7b": _qwen2(3584, 18944, 28, 28, 4),
    "qwen2_5_14b": _qwen2(5120, 13824, 48, 40, 8, rms_norm_eps=1e-05),
    "qwen2_5_32b": _qwen2(5120, 27648, 64, 40, 8, rms_norm_eps=1e-05),
    "qwen2_5_72b": _qwen2(8192, 29568, 80, 64, 8, rms_norm_eps=1e-05),
    "qwen3_0_6b": _qwen3(1024, 3072, 28, 16, tie_word_embeddings=True),
    "qwen3_1_7b": _qwen3(2048, 6144, 28, 16, tie_word_embeddings=True),
    "qwen3_4b": _qwen3(2560, 9728, 36, 32, tie_word_embeddings=True),
    "qwen3_8b": _qwen3(4096, 12288, 36, 32),
    "qwen3_14b": _qwen3(5120, 17408, 40, 40),
    "qwen3_32b": _qwen3(5120, 25600, 64, 64),
    "qwen3_30b_a3b": {**_qwen3(2048, 6144, 48, 32), "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                      "num_key_value_heads": 4, "decoder_sparse_step": 1, "mlp_only_layers": [],
                      "moe_intermediate_size": 768, "norm_topk_prob": True, "num_experts": 128,
                      "num_experts_per_tok": 8, "output_router_logits": False, "router_aux_loss_coef": 0.001},
    "gemma2_9b": {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "attention_bias": False,
                  "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid",
                  "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
                  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "intermediate_size": 14336,
                  "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42,
                  "num_key_value_heads": 8, "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
                  "rope_theta": 10000.0, "sliding_window": 4096, "sliding_window_size": 4096,
                  "torch_dtype": "bfloat16", "vocab_size": 256000},
    "gpt2": _gpt2(768, 12, 12),
    "gpt2_medium": _gpt2(1024, 24, 16),
    "gpt2_large": _gpt2(1280, 36, 20),
    "gpt2_xl": _gpt2(1600, 48, 25),
    "bert_large": {"architectures": ["BertForPreTraining"], "attention_probs_dropout_prob": 0.1,
                   "gradient_checkpointing": False, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
                   "hidden_size": 1024, "intermediate_size": 4096, "layer_norm_eps": 1e-12,
                   "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 16,
                   "num_hidden_layers": 24, "pad_token_id": 0, "position_embedding_type": "absolute",
                   "type_vocab_size": 2, "vocab_size": 30522},
    "t5_3b": {"architectures": ["T5WithLMHeadModel"], "d_ff": 16384, "d_kv": 128, "d_model": 1024, "dropout_rate": 0.1,
              "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512,
              "num_heads": 32, "num_layers": 24, "output_past": True, "pad_token_id": 0,
              "relative_attention_num_buckets": 32, "task_specific_params": {"summarization": {"num_beams": 4}},
              "vocab_size": 32128},
    "whisper_large_v3": {"architectures": ["WhisperForConditionalGeneration"], "activation_dropout": 0.0,
                         "activation_function": "gelu", "apply_spec_augment": False, "attention_dropout": 0.0,
                         "begin_suppress_tokens": [220, 50257], "classifier_proj_size": 256, "d_model": 1280,
                         "decoder_attention_heads": 20, "decoder_ffn_dim": 5120, "decoder_layerdrop": 0.0,
                         "decoder_layers": 32, "dropout": 0.0, "encoder_attention_heads": 20,
                         "encoder_ffn_dim": 5120, "encoder_layerdrop": 0.0, "encoder_layers": 32, "init_std": 0.02,
                         "is_encoder_decoder": True, "mask_feature_length": 10, "mask_time_prob": 0.05,
                         "max_source_positions": 1500, "max_target_positions": 448, "median_filter_width": 7,
                         "model_type": "whisper", "num_hidden_layers": 32, "num_mel_bins": 128, "pad_token_id": 50256,
                         "scale_embedding": False, "torch_dtype": "float16", "use_weighted_layer_sum": False,
                         "vocab_size": 51866},
}


class ShippedSpecs(unittest.TestCase):
    """Each shipped spec whose source is on the hub, against the config.json of that page."""

    def test_each_has_its_config(self) -> None:
        on_hub = {path.stem for path in (ROOT / "model_specs").glob("*.json")
                  if json.loads(path.read_text(encoding="utf-8"))["source"].startswith("https://huggingface.co/")}
        # Its code is no part of transformers.
        self.assertEqual(set(PUBLISHED), {name for name in on_hub if not name.startswith("qwen3_tts")})

    def check(self, name: str) -> None:
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made) / name
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(PUBLISHED[name]), encoding="utf-8")
            sizes = [word for key, value in expand(pathlib.Path(name))["dimensions"].items()
                     for word in ("--set", f"{key}={value}")]
            shipped, translated = (json.loads(run(PROGRAM, "models", model, "--expanded", *sizes)[1])
                                   for model in (name, folder))
            for key in ("name", "source", "notes"):
                del shipped[key], translated[key]
            self.assertEqual(translated, shipped)
            plan = ["--gpus", "8", "--mem", "80G", "--json", *sizes]
            answers = [run(PROGRAM, model, *plan)[1] for model in (name, folder)]
            mine, wanted = answers[1].splitlines(), answers[0].splitlines()
            different = [(a, b) for a, b in zip(mine, wanted, strict=True) if a != b]
            # The two names, and the file.
            self.assertLessEqual(len(different), 3, different)
            for line, _ in different:
                self.assertRegex(line, r'^\s*("(name|model|file)": )')


for _name in PUBLISHED:
    setattr(ShippedSpecs, f"test_{_name}", lambda self, name=_name: self.check(name))


def _tests() -> None:
    def parameters(family: Family, sizes: dict[str, Any]) -> Any:
        return lambda self: self.check_parameters(family, sizes)

    def absent(family: Family, sizes: dict[str, Any]) -> Any:
        return lambda self: self.check_absent_keys(family, sizes)

    def values(family: Family, sizes: dict[str, Any]) -> Any:
        return lambda self: self.check_values(family, sizes)

    for name, family in families().items():
        for i, sizes in enumerate(({},) * family.has_defaults + family.large + family.small):
            setattr(Folders, f"test_{name}_{i}_has_the_parameters", parameters(family, sizes))
            if VERSION == 4:  # Absent keys have the defaults of the older classes.
                setattr(Folders, f"test_{name}_{i}_has_the_defaults", absent(family, sizes))
        for i, sizes in enumerate(family.small):
            setattr(Folders, f"test_{name}_{i}_computes_the_same", values(family, sizes))


_tests()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
