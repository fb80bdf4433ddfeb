#pragma once

// The runtime: the framework, version and implementations that we predict.
//
// The same plan costs different bytes in different frameworks, versions and implementations of an op. Every such choice
// is a named field here, with its source, so that no rule elsewhere asks for a version.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"

namespace fsdp {

/// x * rsqrt(mean(x^2) + eps) * weight.
enum class RmsNormImplementation : std::uint8_t {
  WrittenOut,  ///< In fp32, op by op, cast back, then times the weight (Hugging Face, torchtune).
  Composite,   ///< torch.nn.RMSNorm before 2.9: written out in fp32, weight included, cast last.
  Fused,       ///< aten::_fused_rms_norm: saves its input and one fp32 number per row (torchtitan on torch >= 2.9).
};

enum class RotaryImplementation : std::uint8_t {
  Halves,  ///< x * cos + rotate_half(x) * sin in the activations' dtype, on [batch, heads, seq, dim] (Hugging Face).
  HalvesSeqFirst,  ///< The same on [batch, seq, heads, dim], before heads and positions change places.
  Complex,         ///< In fp32 complex numbers (Llama reference code, torchtitan).
};

/// torch.nn.functional.scaled_dot_product_attention's backends, attention written out, and another library's kernel.
enum class AttentionBackend : std::uint8_t {
  Automatic,  ///< PyTorch's choice for the dtype, the mask and the GPU (simulator/ops/attention_choice.h).
  Flash,
  MemoryEfficient,
  Cudnn,
  Math,
  Eager,      ///< Two matrix products and a softmax in fp32 (Hugging Face's "eager").
  FlashAttn,  ///< flash_attn.flash_attn_func on rows without padding (Hugging Face's "flash_attention_2").
};

/// The loss of a language model. core/plan/loss_table.h has a row of facts for each.
enum class LossKind : std::uint8_t {
  PyTorch,       ///< torch.nn.functional.cross_entropy: makes log_softmax, and its gradient beside that of nll_loss.
  FlashAttn,     ///< flash_attn.losses.cross_entropy.CrossEntropyLoss (Triton): saves the logits and a number per row.
  Liger,         ///< Logits in parts, and all gradients in the forward.
  ChunkedNll,    ///< Logits in parts, and again in the backward (TRL's SFTTrainer).
  Cut,           ///< No logits outside of registers (Apple's cut cross entropy).
  TitanChunked,  ///< Head, loss and backward of some tokens at a time, after the root (torchtitan's
                 ///< ChunkedLossWrapper).
  Liger081,      ///< Liger's of an older release, which makes other logits for each part.
  Verl,          ///< flash-attn's kernel for log probabilities of tokens, whose backward writes over the logits.
};
inline constexpr int kNumLossKinds = static_cast<int>(LossKind::Verl) + 1;

struct Loss {
  LossKind kind = LossKind::PyTorch;
  std::int64_t chunks = 0;  ///< The number of parts of the tokens, if the library lets choose it. 0: its own.

  bool operator==(const Loss&) const = default;
};

struct Implementations {
  RmsNormImplementation rms_norm = RmsNormImplementation::WrittenOut;
  RotaryImplementation rotary = RotaryImplementation::Halves;
  AttentionBackend attention = AttentionBackend::Automatic;
  Loss loss;
  /// Queries, keys and values are one product with one weight, cut apart into three copies, and each attention has a
  /// rotary table of its own, of which it picks the rows of its positions (torchtitan 0.3).
  bool titan_attention = false;
  /// The classes of Llama, Qwen2 and Qwen3 are NeMo Automodel's own: heads are turned in fp32, by rows of a cache of
  /// cos and sin that are picked by position; and a norm of Llama and Qwen2 is one op in fp32 that saves its input,
  /// with a compiled backward. Its other models are transformers' classes.
  bool automodel_decoders = false;
  /// Adapters are NeMo Automodel's own: one op beside the frozen layer (`OpKind::LowRank`), and not PEFT's layers.
  bool lora_in_one_op = false;
  /// The norm of all gradients is one number in fp64, which is all-reduced (NeMo Automodel), and not clip_grad_norm_'s.
  bool norm_in_float64 = false;
  bool repeat_kv = false;     ///< K and V are copied to all query heads before attention (transformers < 5, or a mask).
  bool upcast_logits = true;  ///< The loss works on logits.float() (ForCausalLMLoss, torchtitan).
  bool keep_logits = false;   ///< The logits stay referenced until after the backward (`outputs` of a model).
  /// The model itself casts its logits to fp32 and drops the others (`self.output(h).float()`, torchtitan of 2024,
  /// prime-rl), so that the loss gets, and `keep_logits` keeps, those in fp32.
  bool float_logits = false;
  /// The training loop computes the loss after the root's forward has returned and perhaps resharded (torchtitan).
  /// Otherwise the model does, inside its forward (Hugging Face).
  bool loss_after_root = false;
  /// Keys and values are copied into a cache in training too (`use_cache`, on by default in Hugging Face's
  /// configurations). Activation checkpointing turns it off, as gradient_checkpointing_enable does.
  bool use_cache = true;
  /// Rows of a batch end in padding, of which the model makes a mask for PyTorch's attention (transformers).
  bool padding_mask = false;
  bool prefer_cudnn_attention = false;  ///< Automatic takes cuDNN first on sm_90 and later; its workspaces are unknown.
  /// float32 convolutions run as TF32 where the GPU has it: `torch.backends.cudnn.allow_tf32`, on by default.
  bool cudnn_allow_tf32 = true;
  /// float32 matrix products run as TF32: `torch.backends.cuda.matmul.allow_tf32`, or
  /// `torch.set_float32_matmul_precision("high")`. Off by default.
  bool matmul_allow_tf32 = false;

  /// torch.nn.functional.linear is DeepSpeed's own autograd function, as deepspeed.zero.Init leaves it. Set by
  /// implementations_of; not a choice of the user.
  bool zero3_linear = false;

  bool operator==(const Implementations&) const = default;
};

/// The lifetime of a workspace of cuBLAS or cuBLASLt. Measured by running each release.
enum class CublasWorkspaces : std::uint8_t {
  Kept,       ///< Each has its own, kept per (handle, stream): torch 2.9 to 2.11.
  LtPerCall,  ///< That of cuBLASLt goes with the call: torch 2.8.
  Shared,     ///< cuBLASLt uses that of cuBLAS: torch 2.12 to 2.14 (TORCH_CUBLASLT_UNIFIED_WORKSPACE).
  PerCall,    ///< Both go with the call: torch 2.15 (TORCH_CUBLAS_WORKSPACE_CACHE is off).
};

/// Behavior of FSDP2 and of the libraries below it that differs between versions. The values here are torch 2.11.0's,
/// measured by running it; the default source is torch/distributed/fsdp/_fully_shard/. core/plan/torch_version.cpp has
/// the values of other releases.
struct Quirks {
  /// In forward the all-gather output of the previous unit lives across the copy-out of the next one
  /// (`prev_all_gather_state` in FSDPParamGroup.wait_for_unshard).
  bool forward_all_gather_output_kept = true;
  /// The last gradient of a unit lives until foreach_reduce returns (loop variable of FSDPParamGroup.post_backward).
  bool last_gradient_kept_in_reduce = true;
  /// With HSDP every unit keeps its all-reduce buffer until the end of backward when the reduce dtype differs.
  bool all_reduce_output_kept = true;
  /// clip_grad_norm_ all-reduces one element per parameter, in the gradients' dtype (one element in all before).
  bool clip_reduces_each_norm = true;
  /// A world of one issues no collective.
  bool skip_collectives_of_one = true;
  /// A shard group of one rank calls no reduce-scatter, and keeps no gradient until the reduction returns.
  bool skip_reductions_of_one = true;
  /// The recomputation of a checkpointed block reshards the units inside that it gathered (FSDPParamGroup.post_forward
  /// asks is_bw() since 2.10).
  bool recomputation_reshards = false;
  /// The previous reduction's input lives until the next one returns (loop variable of FSDPParamGroup.post_backward).
  bool reduce_input_kept_in_next = false;
  /// The post-backward of a unit without gradients frees the input of the reduction before it, too.
  bool frozen_units_free_reduce_input = false;
  /// Without a reduce_dtype gradients are reduced in the parameters' own dtype, and not in param_dtype
  /// (FSDPParam.unsharded_grad_dtype).
  bool reduces_in_parameter_dtype = false;
  /// Autograd casts a gradient that is kept for later micro-batches, or reduced in a narrower dtype, on arrival, and
  /// adds later ones to it (FSDPParamGroup._set_unsharded_grad_dtypes); otherwise FSDP2 casts it at the end of the
  /// unit.
  bool casts_gradients_as_they_come = false;
  /// FSDP2 casts the inputs of each module of a unit of several, not only of the first (FSDPState._pre_forward).
  bool casts_inputs_of_each_module = false;
  /// At the end of the root's forward FSDP2 leaves a unit of several modules of which one has not run
  /// (FSDPState._force_complete_incomplete_states). Otherwise it waits for that module, and stays gathered.
  bool completes_partial_units = false;
  /// Bytes of cuBLASLt's workspace beside cuBLAS's own. aten/src/ATen/cuda/CublasHandlePool.cpp
  Bytes cublaslt_workspace{1 << 20};
  CublasWorkspaces cublas_workspaces = CublasWorkspaces::Kept;

  bool operator==(const Quirks&) const = default;
};

/// The framework whose data parallelism trains the model.
enum class Framework : std::uint8_t {
  Fsdp2,       ///< torch.distributed.fsdp.fully_shard.
  Fsdp1,       ///< torch.distributed.fsdp.FullyShardedDataParallel.
  Ddp,         ///< torch.nn.parallel.DistributedDataParallel; on one GPU the model as it is, without any wrapper.
  Zero1,       ///< DeepSpeed with zero_optimization.stage 1: the optimizer's states are cut.
  Zero2,       ///< The same with stage 2: the gradients, too.
  Zero3,       ///< The same with stage 3: the parameters, too.
  SimpleFsdp,  ///< torchtitan's data_parallel of simple_fsdp.py, run without a compiler.
};

/// The DeepSpeed release of Zero1 to Zero3.
inline constexpr std::string_view kDeepSpeedVersion = "0.19.8";

/// The torchtitan release of SimpleFsdp.
inline constexpr std::string_view kTorchtitanVersion = "0.3.0";

struct Runtime {
  Framework framework = Framework::Fsdp2;
  std::string version = "2.11.0";       ///< PyTorch's.
  std::string flavor = "transformers";  ///< The origin of the model code; sets `implementations`; printed.
  Implementations implementations;
  Quirks quirks;
  /// PYTORCH_ALLOC_CONF, such as "expandable_segments:True". Empty: PyTorch's defaults.
  std::string allocator_settings;

  bool operator==(const Runtime&) const = default;
};

/// The names of all flavors: "transformers", "transformers-repeat-kv", "torchtitan", "torchtitan-0.3", "automodel",
/// "automodel-hf".
std::vector<std::string_view> flavors();

/// What a flavor's training loop does with a plan, beside its model code.
struct FlavorHabits {
  bool early_stop = true;           ///< `Checkpointing::early_stop`.
  bool cast_forward_inputs = true;  ///< `MixedPrecision::cast_forward_inputs`.
  bool decays_weights = true;       ///< False: `Optimizer::weight_decay` is 0.

  bool operator==(const FlavorHabits&) const = default;
};
FlavorHabits habits_of_flavor(std::string_view flavor);

/// Whether this is a flavor of torchtitan.
bool is_of_torchtitan(std::string_view flavor);

/// Whether this is a flavor of NeMo Automodel.
bool is_of_automodel(std::string_view flavor);

/// The runtime of a flavor. Error: the known names.
Result<Runtime> runtime_of_flavor(const std::string& flavor);

}  // namespace fsdp
