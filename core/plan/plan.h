#pragma once

// The plan: how to train a model on a cluster. It has everything that the user may decide, and nothing that follows
// from it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/float8.h"
#include "core/plan/liger_kernels.h"
#include "core/plan/lora.h"
#include "core/plan/mesh.h"
#include "core/plan/other_model.h"
#include "core/plan/packing.h"
#include "core/plan/quantization.h"
#include "core/plan/runtime.h"

namespace fsdp {

/// `reshard_after_forward` of fully_shard.
struct ReshardAfterForward {
  enum class Kind : std::uint8_t {
    Default,  ///< None in Python: true, but false for the root.
    Always,   ///< True.
    Never,    ///< False.
    Smaller,  ///< An integer: keep a shard over that smaller world size.
  };
  Kind kind = Kind::Default;
  std::int64_t world_size = 0;  ///< For `Smaller`: a divisor of the shard world size, neither 1 nor all of it.

  bool operator==(const ReshardAfterForward&) const = default;
};

/// One call of fully_shard.
struct Unit {
  std::vector<std::string> modules;  ///< Fully qualified names; "" is the root. Several: one unit of several modules.
  ReshardAfterForward reshard_after_forward;

  bool operator==(const Unit&) const = default;
};

/// Whether the root module is one of the unit's modules.
bool is_root(const Unit& unit);

/// torch.distributed.fsdp.MixedPrecisionPolicy. An empty dtype defaults to the parameters' own.
struct MixedPrecision {
  std::optional<Dtype> param_dtype;
  std::optional<Dtype> reduce_dtype;
  std::optional<Dtype> output_dtype;
  bool cast_forward_inputs = true;
  /// The forward and the loss run under torch.autocast in this dtype, bfloat16. Under FSDP2 and FSDP1 it is beside a
  /// param_dtype of the same dtype; otherwise parameters keep their own, without the dtypes above. Empty: no autocast.
  std::optional<Dtype> autocast = {};
  /// The logits that the model returns are copied to fp32 before its forward returns (accelerate's
  /// convert_outputs_to_fp32, under autocast alone); output_dtype is cast from that copy.
  bool float_outputs = false;

  bool operator==(const MixedPrecision&) const = default;
};

enum class CheckpointMode : std::uint8_t {
  None,
  Selective,  ///< Keeps the outputs of `selective_keep` and recomputes the rest.
  Full,       ///< Keeps the inputs of the block only.
  Nested,     ///< As Full, and each module that the block calls is a checkpoint inside of that one (accelerate's
              ///< FSDP2 below axolotl's). core/plan/nested_checkpoints.h
  Reentrant,  ///< As Full, with use_reentrant=True around the block and its hooks. core/plan/reentrant_checkpoints.h
};

/// Activation checkpointing (torch.utils.checkpoint) of repeated blocks.
struct Checkpointing {
  /// A module of a repeated call, by its fully qualified name. Other modules are not checkpointed.
  struct Entry {
    std::string module;
    CheckpointMode mode = CheckpointMode::Full;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  /// Op kinds whose outputs selective checkpointing keeps; torchtitan's policy keeps every second linear.
  std::vector<OpKind> selective_keep = {OpKind::Attention, OpKind::Linear};
  bool every_second_linear = true;
  bool early_stop = true;  ///< Recomputation stops at the last saved tensor (PyTorch's default; torchtitan: false).
  /// The inputs that checkpointed blocks keep are in pinned host memory: torch.autograd.graph.save_on_cpu around them.
  bool offload_inputs = false;

  /// Whether any module runs again.
  bool recomputes() const;
  /// The modules that are checkpointed so, in the order of `entries`.
  std::vector<std::string> modules(CheckpointMode mode) const;
  /// Whether there is any.
  bool has(CheckpointMode mode) const { return !modules(mode).empty(); }

  bool operator==(const Checkpointing&) const = default;
};

/// core/plan/optimizer_table.h has a row of facts for each.
enum class OptimizerKind : std::uint8_t {
  AdamW,
  Adam,
  Sgd,
  // bitsandbytes.
  BnbAdamW8bit,
  BnbAdam8bit,
  BnbPagedAdamW,
  BnbPagedAdamW8bit,
  BnbLion,
  BnbLion8bit,
  BnbPagedLion,
  BnbPagedLion8bit,
  // torchao.
  AoAdamW8bit,
  AoAdamW4bit,
  AoAdamWFp8,
  // Others.
  Adafactor,
  TorchAdafactor,
  ScheduleFreeAdamW,
};
inline constexpr int kNumOptimizerKinds = static_cast<int>(OptimizerKind::ScheduleFreeAdamW) + 1;
/// PyTorch's; another library's optimizer has one way, which is called Foreach.
enum class OptimizerImplementation : std::uint8_t { Foreach, Fused, ForLoop };
/// Precision of the moments of PyTorch's optimizers. Those of other libraries are facts of their rows.
enum class OptimizerStates : std::uint8_t {
  AsParameter,  ///< zeros_like(parameter): PyTorch's own.
  BFloat16,
};

/// Arguments of torch.optim.Muon, for a script that trains some matrices with it and the rest with another optimizer.
struct MuonOptions {
  bool nesterov = true;
  std::int64_t ns_steps = 5;  ///< Iterations of Newton-Schulz, 1 to 99.
  bool steps_last = false;    ///< After the other optimizer, and not before it.

  bool operator==(const MuonOptions&) const = default;
};

struct Optimizer {
  OptimizerKind kind = OptimizerKind::AdamW;
  OptimizerImplementation implementation = OptimizerImplementation::Foreach;
  OptimizerStates states = OptimizerStates::AsParameter;
  double weight_decay = 0.01;
  double momentum = 0;  ///< For SGD.
  std::optional<double> clip_grad_norm;
  /// Muon updates the parameters with `Parameter::is_muon`, and the optimizer above the others. Empty: no Muon.
  std::optional<MuonOptions> muon = {};

  bool operator==(const Optimizer&) const = default;
};

/// Where the model is built before it is sharded; decides the peak of initialization.
enum class Initialization : std::uint8_t {
  Meta,    ///< Built on the meta device, sharded, then filled: no more than the shards.
  Cpu,     ///< Built on the CPU; fully_shard moves one unit at a time to the device.
  Device,  ///< Built on the device: the whole model at once.
};

/// Arguments of DistributedDataParallel.
struct DdpOptions {
  /// A bucket is closed after so many MiB of gradients. Defaults to 25, and 1 for the first bucket.
  std::optional<std::int64_t> bucket_cap_mb;
  bool gradient_as_bucket_view = false;  ///< A gradient is a view of its bucket, and not a second tensor.
  bool broadcast_buffers = true;         ///< Rank 0 sends its buffers before each forward.
  /// DDP looks for parameters without a gradient in each step; without it such a model fails in its second step.
  bool find_unused_parameters = false;

  bool operator==(const DdpOptions&) const = default;
};

/// `backward_prefetch` of FullyShardedDataParallel: when the next unit of a backward is gathered.
enum class BackwardPrefetch : std::uint8_t {
  Pre,   ///< Before the backward of the unit before it.
  Post,  ///< After it, before its reduction.
  None,  ///< When it is needed.
};

/// Arguments of FullyShardedDataParallel (FSDP1). Its strategy follows from the mesh and the units'
/// reshard_after_forward, which must be equal.
struct Fsdp1Options {
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;
  bool forward_prefetch = false;  ///< The next unit of a forward is gathered before the one before it.
  bool limit_all_gathers = true;  ///< The CPU waits until the unit before the last one is freed.
  bool use_orig_params = false;   ///< The optimizer gets views of the original parameters, and not the flat ones.
  // Fields of its MixedPrecision that `Plan::mixed_precision` lacks.
  std::optional<Dtype> buffer_dtype = {};  ///< FSDP1 casts buffers to it. Empty: no cast.
  bool cast_root_forward_inputs = true;    ///< The root casts its inputs, whatever cast_forward_inputs says of units.

  bool operator==(const Fsdp1Options&) const = default;
};

/// Keys of DeepSpeed's fp16. All but the first are about the loss scale, which affects neither memory nor collectives.
struct Fp16Options {
  bool auto_cast = false;                 ///< The engine casts floating inputs that it is given by position.
  double loss_scale = 0;                  ///< 0: dynamic. A fixed scale ignores the other keys.
  std::int64_t initial_scale_power = 16;  ///< The initial scale is 2 to this.
  std::int64_t loss_scale_window = 1000;  ///< The scale doubles after so many steps without an overflow,
  std::int64_t hysteresis = 2;            ///< and halves after so many overflows.
  bool consecutive_hysteresis = false;    ///< A step without an overflow resets their count.
  std::int64_t min_loss_scale = 1;

  bool operator==(const Fp16Options&) const = default;
};

/// ZeRO-Infinity: the parts of ZeRO-3 in files on an NVMe drive, by DeepSpeed's keys of
/// offload_optimizer, of offload_param and of the section aio.
struct NvmeOptions {
  std::string path = "/local_nvme";     ///< nvme_path of both sections; exported.
  bool optimizer = false;               ///< Sub-groups' fp32 parameters, their moments, and their gradients.
  std::int64_t buffer_count = 4;        ///< Page-locked buffers of the optimizer, each as large as a sub-group in fp32.
  bool pipeline_read = false;           ///< The next sub-group is read while one is updated,
  bool pipeline_write = false;          ///< and the last one is written.
  bool parameters = false;              ///< The rank's parts of parameters, beside offload_param.
  std::int64_t param_buffer_count = 5;  ///< Page-locked buffers of parameters,
  std::int64_t param_buffer_size = 100'000'000;     ///< and elements of each.
  std::int64_t max_in_cpu = 1'000'000'000;          ///< Elements of a rank's parts that stay in host memory.
  std::int64_t block_size = std::int64_t{1} << 20;  ///< aio: pieces below this, or below 1 MiB, stay in memory. Bytes.
  std::int64_t intra_op_parallelism = 1;            ///< aio: the size of each file is a multiple of so many KiB.

  bool operator==(const NvmeOptions&) const = default;
};

/// Keys of DeepSpeed's zero_optimization.
struct ZeroOptions {
  std::int64_t reduce_bucket_size = 500'000'000;  ///< Elements of the buffer in which gradients are reduced.
  bool overlap_comm = false;  ///< Collectives have their own streams; ZeRO-1 and 2 then reduce from two buffers.
  // For ZeRO-3 alone, all in elements; DeepSpeed writes "stage3_" before all but the last.
  std::int64_t prefetch_bucket_size = 50'000'000;      ///< Gathered ahead of the modules that need it.
  std::int64_t param_persistence_threshold = 100'000;  ///< Parameters of no more elements are whole between steps.
  std::int64_t max_live_parameters = 1'000'000'000;    ///< Nothing is gathered ahead above this.
  std::int64_t max_reuse_distance = 1'000'000'000;     ///< Parameters needed again within this many elements stay
                                                       ///< gathered.
  std::int64_t sub_group_size = 1'000'000'000;         ///< Elements of a rank's part, updated at a time.
  /// ZeRO++ hpZ: so many neighbors share a second copy of the parameters, and gather from it in backward. 1: no copy.
  std::int64_t hpz_partition_size = 1;
  bool quantized_weights = false;    ///< ZeRO++ qwZ: parameters are gathered in 8 bits.
  bool quantized_gradients = false;  ///< ZeRO++ qgZ: gradients are exchanged in 4 bits, in a node and between nodes.
  // For a plan with cpu_offload alone.
  bool pin_memory = true;      ///< For offload_optimizer and offload_param: tensors on the host are page-locked.
  bool offload_param = false;  ///< ZeRO-3: the rank's parts of parameters are on the host, too.
  double offload_ratio = 1;    ///< ZeRO-3: the host updates this share of the sub-groups, the last ones.
  NvmeOptions nvme = {};       ///< ZeRO-3: the parts of both on a drive, not in host memory.
  // For a plan that computes in fp16 alone.
  Fp16Options fp16;

  bool operator==(const ZeroOptions&) const = default;
};

struct Plan {
  std::string model;              ///< Name of the model, and
  std::string model_fingerprint;  ///< a hash of its parameters: we refuse a plan for another model.
  std::string model_file;         ///< The path as given, to reproduce the plan.
  std::string recipe;
  std::vector<Dimension> dimensions;   ///< Sizes of the workload: batch (per rank and micro-batch), seq, ...
  std::vector<std::string> trainable;  ///< Patterns given by the user.
  std::vector<std::string> frozen;
  std::optional<LoraOptions> lora = {};           ///< Adapters, by which the model is built; everything else is frozen.
  std::optional<Packing> packing = {};            ///< A micro-batch is one row of several documents.
  std::optional<Quantization> quantization = {};  ///< The frozen base below the adapters is stored so.
  std::optional<LigerKernels> liger = {};         ///< Kernels of Liger, by which the model is built.
  std::optional<Float8Training> float8 = {};      ///< Linear layers that multiply in 8-bit floats, likewise.
  std::vector<OtherModel> also = {};              ///< Models beside the trained one; `Model::beside` has each.

  Mesh mesh;
  std::vector<Unit> units;               ///< In the order of the fully_shard calls: bottom-up, the root last.
  std::optional<Dtype> parameter_dtype;  ///< For the sharded parameters; empty: as in the spec. fp32 = master weights.
  MixedPrecision mixed_precision;
  Checkpointing checkpointing;
  /// CPUOffloadPolicy(pin_memory=True): shards, gradients and optimizer on the host. ZeRO: offload_optimizer to cpu.
  bool cpu_offload = false;
  std::int64_t forward_prefetch = 0;   ///< Units gathered ahead explicitly in forward (each unit's
                                       ///< set_modules_to_forward_prefetch); 0: FSDP2's implicit order.
  std::int64_t backward_prefetch = 1;  ///< Units gathered ahead in backward; 1: FSDP2's default; more: each unit's
                                       ///< set_modules_to_backward_prefetch.
  /// Number of reduction inputs that live at once: set_reduce_scatter_max_input_buffers. Since torch 2.13.
  std::int64_t reduce_scatter_buffers = 1;
  /// Reductions have a communicator of their own: set_separate_reduce_scatter_group. Since torch 2.13.
  bool separate_reduce_scatter_group = false;
  /// The second step captures forward and backward in a CUDA graph, which later ones replay. Gradients are zeroed in
  /// place (torchtitan 0.3, distributed/cudagraph.py).
  bool cuda_graphs = false;
  std::int64_t accumulation = 1;       ///< Micro-batches per optimizer step.
  bool sync_every_micro_batch = true;  ///< False: set_requires_gradient_sync(False) except for the last one.
  Optimizer optimizer;
  Initialization initialization = Initialization::Meta;
  Runtime runtime;
  DdpOptions ddp;      ///< For Framework::Ddp alone.
  Fsdp1Options fsdp1;  ///< For Framework::Fsdp1 alone.
  ZeroOptions zero;    ///< For Framework::Zero1 to Zero3 alone.

  bool operator==(const Plan&) const = default;
};

/// Micro-batches of one step on all ranks: a step trains on this many times the samples of one.
std::int64_t micro_batches_of_step(const Plan& plan);

/// The index in `Plan::units` of the unit with this module; -1 if there is none.
int unit_of(const Plan& plan, std::string_view module);

/// Refuses a plan of another framework than FSDP2. `what` names the caller: "fsdp-exec runs".
std::optional<Error> refuse_other_frameworks(const Plan& plan, std::string_view what);

/// Whether Muon updates the parameter under this plan.
bool is_updated_by_muon(const Plan& plan, const Parameter& parameter);

/// Why the plan's optimizer cannot work, or is not predicted, on a mesh or with offload: all ranks must have equal
/// parts of Muon's matrices; DeepSpeed updates bf16 parameters on the host with Adam only. `nullopt` if it works.
std::optional<Error> optimizer_misfit(const Plan& plan, const Model& model, const Mesh& mesh, bool cpu_offload);

/// Why a step of several passes (`has_passes`) is not predicted under this plan.
std::optional<Error> passes_misfit(const Plan& plan, const Model& model);

/// Why a quantized base cannot be trained, or is not predicted, under this plan.
std::optional<Error> quantization_misfit(const Plan& plan, const Model& model);

/// Why Liger's kernels cannot run, or are not predicted, under this plan.
std::optional<Error> liger_misfit(const Plan& plan);

/// The dtype in which ZeRO computes; that of the copy that its optimizer updates. mixed_precision is bf16.enabled or
/// fp16.enabled: parameters and gradients are in its param_dtype, and the optimizer updates the rank's part of an fp32
/// copy. Without it, and with a parameter_dtype of bfloat16, the copy and the optimizer's states are in bfloat16, too.
/// REQUIRES: DeepSpeed's ZeRO trains the model.
Dtype zero_dtype(const Plan& plan);
Dtype zero_master_dtype(const Plan& plan);

/// Turns offload on or off, with all fields that belong to it.
void set_offload(Plan& plan, bool offload);

/// DeepSpeed's defaults.
ZeroOptions default_zero_options(Framework framework);

/// Sets the loss of a plan. All but PyTorch's read 16-bit logits as they are: their kernels compute in fp32.
void set_loss(Plan& plan, const Loss& loss);

/// Dtype of activations under a plan: param_dtype, by default that of the parameters. Under autocast it is that of the
/// model's first parameter, usually an embedding, and only results of ops outside autocast's lists have it.
Dtype activation_dtype(const Model& model, const Plan& plan);

/// Dtype of products and attention under a plan: that of autocast, otherwise that of activations.
Dtype compute_dtype(const Model& model, const Plan& plan);

/// The dtype in which a parameter is stored: parameter_dtype if it is trained, otherwise the checkpoint's.
Dtype stored_dtype(const Plan& plan, const Parameter& parameter);

/// The implementations that run under a plan: recomputation turns off the cache of keys and values, as in transformers.
Implementations implementations_of(const Plan& plan);

}  // namespace fsdp
