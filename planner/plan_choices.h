#pragma once

// What a user decides about a plan before it is searched: machines, work, and what of the plan itself is fixed.
//
// Plain values, each absent where the user did not decide. The command reads them from its options, the window from its
// controls, and a remedy is some of them. What they come to, with a recipe's and a model's own values where nothing is
// said, is for planner/plan_request.h.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/joined_names.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/plan_names.h"
#include "planner/space.h"

namespace fsdp::planner {

/// What is kept outside of the devices, if anything is.
struct OffloadChoice {
  bool is_on = false;
  bool to_drive = false;  ///< For ZeRO-3: the optimizer's tensors are on an NVMe drive, and not in host memory.

  constexpr OffloadChoice() = default;
  constexpr OffloadChoice(bool on, bool drive = false) : is_on(on), to_drive(drive) {}
  constexpr explicit operator bool() const { return is_on; }
  bool operator==(const OffloadChoice&) const = default;
};

/// Why plans of this framework cannot keep something there; nothing: they can.
std::optional<Error> offload_misfit(const OffloadChoice& choice, std::optional<Framework> framework);

/// Offloads a plan as it is chosen, or keeps it on the devices.
void apply_offload(Plan& plan, const OffloadChoice& choice);

/// One thing to decide.
enum class PlanChoice : std::uint8_t {
  // The machines.
  Gpus,
  Nodes,
  GpuName,
  Memory,
  ClusterFile,
  IntraLinkName,
  IntraBandwidth,
  BusBandwidth,
  NetworkName,
  NicBandwidth,
  GpusPerNic,
  Sharp,
  NcclVersion,
  NcclAlgorithms,
  NcclProtocols,
  NodeSpread,
  HostMemory,
  NvmeBandwidth,
  NvmeCapacity,
  // The work.
  Recipe,
  Batch,
  Sequence,
  GlobalBatch,
  Accumulate,
  SetDimension,
  Trainable,
  Freeze,
  Precision,
  ReduceDtype,
  OptimizerName,
  OptimizerImpl,
  OptimizerStatesName,
  Clip,
  Initialization,
  Flavor,
  CrossEntropy,
  AllocConf,
  Torch,
  // The plan.
  Runtime,
  DeepSpeedFile,
  Strategy,
  Shard,
  Replicate,
  Reshard,
  Wrap,
  WrapEnds,
  Checkpoint,
  Offload,
  GradientSync,
  Prefetch,
  BackwardPrefetch,
  ReduceScatterBuffers,
  SeparateReduceScatter,
};
inline constexpr int kNumPlanChoices = static_cast<int>(PlanChoice::SeparateReduceScatter) + 1;

/// All of them, in the order of the enum.
std::span<const PlanChoice> plan_choices();

/// Parameters, compute and reduction in one word.
enum class Precision : std::uint8_t {
  BFloat16,  ///< All in it, as is Float16 and Float32.
  Mixed,     ///< float32 weights, bfloat16 compute, float32 reduce.
  Float16,
  MixedFloat16,  ///< As Mixed, with float16.
  Float32,
};

/// After which micro-batches gradients are reduced: set_requires_gradient_sync.
enum class GradientSync : std::uint8_t {
  Every,
  Last,  ///< Until then each rank keeps the gradients of its own samples, unsharded.
};

struct GradientClipping {
  std::optional<double> norm;  ///< Empty: gradients are not clipped.

  bool operator==(const GradientClipping&) const = default;
};

struct PlanChoices {
  // The machines.
  std::optional<int> gpus = {};                  ///< GPUs of a node. Any integer: a cluster says which make sense.
  std::optional<int> nodes = {};                 ///< As `gpus`.
  std::optional<std::string> gpu_name = {};      ///< From the library, or the beginning of a name.
  std::optional<Bytes> memory = {};              ///< Memory of a GPU.
  std::optional<std::string> cluster_file = {};  ///< A file, or the name of a shipped cluster.
  std::optional<IntraLink> intra_link = {};
  std::optional<BytesPerSecond> intra_bandwidth = {};  ///< Nominal, of one GPU, per direction.
  std::optional<BytesPerSecond> bus_bandwidth = {};  ///< That large collectives of a node reach, as nccl-tests has it.
  std::optional<NetworkKind> network = {};
  std::optional<BytesPerSecond> nic_bandwidth = {};
  std::optional<int> gpus_per_nic = {};
  std::optional<bool> sharp = {};
  std::optional<std::string> nccl_version = {};       ///< "2.27.5"
  std::optional<std::string> nccl_algorithms = {};    ///< NCCL_ALGO.
  std::optional<std::string> nccl_protocols = {};     ///< NCCL_PROTO.
  std::optional<double> node_spread = {};             ///< Standard deviation of the nodes' times, as a share.
  std::optional<Bytes> host_memory = {};              ///< Memory of a node.
  std::optional<BytesPerSecond> nvme_bandwidth = {};  ///< Bandwidth of a node's drives.
  std::optional<Bytes> nvme_capacity = {};            ///< The same.

  // The work.
  std::optional<std::string> recipe = {};
  std::optional<std::int64_t> batch = {};         ///< Samples per GPU and micro-batch.
  std::optional<std::int64_t> sequence = {};      ///< Tokens per sample.
  std::optional<std::int64_t> global_batch = {};  ///< Samples per optimizer step, over all GPUs.
  std::optional<std::int64_t> accumulation = {};  ///< Micro-batches per optimizer step.
  std::vector<Dimension> dimensions = {};         ///< The model's other sizes, as they were given.
  std::vector<std::string> trainable = {};        ///< Patterns of names.
  std::vector<std::string> frozen = {};
  std::optional<Precision> precision = {};
  std::optional<Dtype> reduce_dtype = {};
  std::optional<OptimizerKind> optimizer = {};
  std::optional<OptimizerImplementation> optimizer_implementation = {};
  std::optional<OptimizerStates> optimizer_states = {};
  std::optional<GradientClipping> clip = {};
  std::optional<fsdp::Initialization> initialization = {};
  std::optional<std::string> flavor = {};  ///< Whose model code: core/plan/runtime.h has the names.
  std::optional<CrossEntropyImplementation> cross_entropy = {};
  std::optional<std::string> allocator_settings = {};  ///< PYTORCH_ALLOC_CONF.
  std::optional<std::string> torch = {};               ///< Release of PyTorch: core/plan/torch_version.h has them.

  // The plan.
  std::optional<Framework> runtime = {};
  std::optional<std::string> deepspeed_file = {};  ///< A ds_config.json. Other choices override what it says.
  std::optional<std::string> strategy = {};        ///< FSDP1's name, of planner/strategy_names.h.
  std::optional<std::int64_t> shard = {};
  std::optional<std::int64_t> replicate = {};
  std::optional<ReshardChoice> reshard = {};
  std::optional<Wrap> wrap = {};
  std::optional<bool> wrap_ends = {};
  std::optional<CheckpointChoice> checkpoint = {};
  std::optional<OffloadChoice> cpu_offload = {};
  std::optional<GradientSync> gradient_sync = {};
  std::optional<std::int64_t> forward_prefetch = {};
  std::optional<std::int64_t> backward_prefetch = {};
  std::optional<std::int64_t> reduce_scatter_buffers = {};
  std::optional<bool> separate_reduce_scatter = {};

  bool operator==(const PlanChoices&) const = default;
};

/// Whether the user decided it.
bool has(const PlanChoices& choices, PlanChoice choice);
void clear(PlanChoices& choices, PlanChoice choice);

/// Those choices that are wanted.
PlanChoices only(PlanChoices choices, bool (*is_wanted)(PlanChoice));

/// `choices` with what `change` decides: patterns and sizes beside those that are there, all else in their place.
PlanChoices with_change(PlanChoices choices, const PlanChoices& change);

/// The model's own size `name` as a choice: `batch`, `sequence`, or one of `dimensions`.
PlanChoices size_choice(const std::string& name, double value);

bool is_about_machines(PlanChoice choice);
/// Says something about the plan, which a plan that is there answers by itself.
bool is_about_plan(PlanChoice choice);

/// What people read about a choice.
struct PlanChoiceInfo {
  PlanChoice choice = PlanChoice::Gpus;
  std::string_view place;   ///< "--gpus": `Error::where` of what is wrong with it, and its key in project files.
  std::string_view values;  ///< "bf16|mixed": what it may be; empty: anything.
  std::string_view help;    ///< A sentence without its full stop.
  std::string_view former;  ///< What the version before this one called the place, if something else.
};

/// Texts of PlanChoice::Runtime: its values, and its help.
struct RuntimeTexts {
  static constexpr std::string_view kNothing{};
  static constexpr std::string_view kBar = "|";
  static constexpr std::string_view kComma = ", ";
  static constexpr std::string_view kBefore = "Data parallelism that is planned, fsdp2 by default: ";
  static constexpr std::string_view kAfter = "; all compares them";
  static constexpr std::string_view kValues = JoinedNames<kRuntimes, kNothing, kBar, kNothing>::text();
  static constexpr std::string_view kHelp = JoinedNames<kRuntimes, kBefore, kComma, kAfter>::text();
};

inline constexpr PlanChoiceInfo kPlanChoiceInfos[kNumPlanChoices] = {
    PlanChoiceInfo{PlanChoice::Gpus, "--gpus", "", "GPUs per node"},
    PlanChoiceInfo{PlanChoice::Nodes, "--nodes", "", "Nodes (default: 1)"},
    PlanChoiceInfo{PlanChoice::GpuName, "--gpu", "", "GPU, such as T4 or \"H100 SXM\" (see fsdp-plan gpus)"},
    PlanChoiceInfo{PlanChoice::Memory, "--mem", "", "Memory of a GPU, such as 16G"},
    PlanChoiceInfo{PlanChoice::ClusterFile, "--cluster", "", "Cluster, by file or by name"},
    PlanChoiceInfo{PlanChoice::IntraLinkName, "--intra-link", "nvswitch|nvlink|pcie-peer|pcie-host",
                   "Link between the GPUs of a node"},
    PlanChoiceInfo{PlanChoice::IntraBandwidth, "--intra-bandwidth", "",
                   "Nominal bandwidth of that link per GPU and direction, such as 300GB/s"},
    PlanChoiceInfo{PlanChoice::BusBandwidth, "--bus-bandwidth", "",
                   "What large collectives of a node reach: busbw of nccl-tests, such as 12GB/s"},
    PlanChoiceInfo{PlanChoice::NetworkName, "--network", "infiniband|roce|ethernet|efa|slingshot|tcpx",
                   "Network between the nodes"},
    PlanChoiceInfo{PlanChoice::NicBandwidth, "--nic-bandwidth", "", "Bandwidth of a NIC per direction"},
    PlanChoiceInfo{PlanChoice::GpusPerNic, "--gpus-per-nic", "", "GPUs that share a NIC"},
    PlanChoiceInfo{PlanChoice::Sharp, "--sharp", "yes|no", "Switches that reduce (NCCL's CollNet plugin)"},
    PlanChoiceInfo{PlanChoice::NcclVersion, "--nccl-version", "", "Version of NCCL, such as 2.27.5"},
    PlanChoiceInfo{PlanChoice::NcclAlgorithms, "--nccl-algo", "", "NCCL_ALGO, such as Ring,Tree or ^NVLS"},
    PlanChoiceInfo{PlanChoice::NcclProtocols, "--nccl-proto", "", "NCCL_PROTO, such as Simple"},
    PlanChoiceInfo{PlanChoice::NodeSpread, "--node-spread", "",
                   "How far nodes differ in speed, as a share (default: 0.035; 0: all alike)"},
    PlanChoiceInfo{PlanChoice::HostMemory, "--host-mem", "", "Host memory of a node, for CPU offload"},
    PlanChoiceInfo{PlanChoice::NvmeBandwidth, "--nvme-bandwidth", "",
                   "What a node reads from its NVMe drives or writes to them, such as 6GB/s"},
    PlanChoiceInfo{PlanChoice::NvmeCapacity, "--nvme-capacity", "", "What the NVMe drives of a node hold"},
    PlanChoiceInfo{PlanChoice::Recipe, "--recipe", "", "Training recipe defined by the model"},
    PlanChoiceInfo{PlanChoice::Batch, "--batch", "", "Samples per GPU and micro-batch"},
    PlanChoiceInfo{PlanChoice::Sequence, "--seq", "", "Tokens per sample, such as 4096 or 4k"},
    PlanChoiceInfo{PlanChoice::GlobalBatch, "--global-batch", "",
                   "Samples per optimizer step, over all GPUs; micro-batch and accumulation are searched"},
    PlanChoiceInfo{PlanChoice::Accumulate, "--accumulate", "", "Micro-batches per optimizer step"},
    PlanChoiceInfo{PlanChoice::SetDimension, "--set", "", "Any other dimension of the model"},
    PlanChoiceInfo{PlanChoice::Trainable, "--trainable", "", "Train only the parameters that match"},
    PlanChoiceInfo{PlanChoice::Freeze, "--freeze", "", "Freeze the parameters that match"},
    PlanChoiceInfo{PlanChoice::Precision, "--precision", "bf16|mixed|fp16|fp16-mixed|fp32",
                   "bf16, fp16, fp32: all in that dtype; mixed: fp32 weights, bf16 compute, fp32 reduce"},
    PlanChoiceInfo{PlanChoice::ReduceDtype, "--reduce-dtype", "float32|bfloat16|float16",
                   "Dtype in which gradients are reduced"},
    PlanChoiceInfo{PlanChoice::OptimizerName, "--optimizer", "adamw|adam|sgd", "Optimizer"},
    PlanChoiceInfo{PlanChoice::OptimizerImpl, "--optimizer-impl", "foreach|fused|for_loop",
                   "PyTorch's implementation of the optimizer"},
    PlanChoiceInfo{PlanChoice::OptimizerStatesName, "--optimizer-state-dtype", "as_parameter|bfloat16|8bit",
                   "Precision of the optimizer states", "--states"},
    PlanChoiceInfo{PlanChoice::Clip, "--clip-grad-norm", "none", "Maximum gradient norm, or none for no clipping",
                   "--clip"},
    PlanChoiceInfo{
        PlanChoice::Initialization, "--initialization", "meta|cpu|device",
        "Where the model is made before it is sharded: on the meta device, in the memory of the CPU, or whole "
        "on each GPU"},
    PlanChoiceInfo{PlanChoice::Flavor, "--flavor", "transformers|transformers-repeat-kv|torchtitan",
                   "Whose model code is predicted", "--flavour"},
    PlanChoiceInfo{PlanChoice::CrossEntropy, "--cross-entropy", "pytorch|flash_attn",
                   "Cross entropy of the loss; flash_attn's reads the logits as they are, without a copy in fp32"},
    PlanChoiceInfo{PlanChoice::AllocConf, "--alloc-conf", "", "PYTORCH_ALLOC_CONF, such as expandable_segments:True"},
    PlanChoiceInfo{PlanChoice::Torch, "--torch", "2.8|2.9|2.10|2.11|2.12|2.13|2.14|2.15",
                   "Release of PyTorch that is predicted (default: 2.11)"},
    PlanChoiceInfo{PlanChoice::Runtime, "--runtime", RuntimeTexts::kValues, RuntimeTexts::kHelp},
    PlanChoiceInfo{PlanChoice::DeepSpeedFile, "--deepspeed", "",
                   "DeepSpeed's configuration: its stage, buffers, batch, precision, optimizer and clipping; other "
                   "options override it"},
    PlanChoiceInfo{PlanChoice::Strategy, "--strategy",
                   "FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|_HYBRID_SHARD_ZERO2",
                   "Sharding strategy in FSDP1's names"},
    PlanChoiceInfo{PlanChoice::Shard, "--shard", "", "GPUs over which one copy of the model is sharded"},
    PlanChoiceInfo{PlanChoice::Replicate, "--replicate", "", "Copies of the model"},
    PlanChoiceInfo{PlanChoice::Reshard, "--reshard", "true|false",
                   "reshard_after_forward: true, false, a smaller world size, keep-last:4"},
    PlanChoiceInfo{PlanChoice::Wrap, "--wrap", "blocks|sublayers|projections|root",
                   "Units: blocks, 4 (blocks in one), sublayers (attention, MLP), projections, root, names with commas "
                   "(model.layers.*), or as PyTorch's auto-wrap policies: size:100M (elements), class:NAME,NAME"},
    PlanChoiceInfo{PlanChoice::WrapEnds, "--wrap-ends", "yes|no", "Wrap embeddings and heads as separate units"},
    PlanChoiceInfo{
        PlanChoice::Checkpoint, "--activation-checkpointing", "none|full|selective",
        "Activation checkpointing: none, full, selective (attention and every second matmul are saved), save-matmuls "
        "(attention and all of them), save-attention; of the first 12 blocks of each stack: full:12; of each stack "
        "its own number: full:32,12",
        "--checkpoint"},
    PlanChoiceInfo{PlanChoice::Offload, "--offload", "yes|no|nvme",
                   "Keep parameters, gradients and optimizer in CPU memory, or on NVMe drives (ZeRO-3)"},
    PlanChoiceInfo{
        PlanChoice::GradientSync, "--gradient-sync", "every|last",
        "Micro-batches after which gradients are reduced: every one, or the last of a step (no_sync before)"},
    PlanChoiceInfo{PlanChoice::Prefetch, "--prefetch", "", "Units to prefetch in forward"},
    PlanChoiceInfo{PlanChoice::BackwardPrefetch, "--backward-prefetch", "", "Units to prefetch in backward"},
    PlanChoiceInfo{PlanChoice::ReduceScatterBuffers, "--reduce-scatter-buffers", "",
                   "Inputs of reduce-scatters that live at once (PyTorch 2.13 and later; default: 1)"},
    PlanChoiceInfo{PlanChoice::SeparateReduceScatter, "--separate-reduce-scatter", "yes|no",
                   "Reduce-scatters with a communicator of their own (PyTorch 2.13 and later)"},
};

constexpr const PlanChoiceInfo& info_of(PlanChoice choice) {
  return kPlanChoiceInfos[static_cast<std::size_t>(choice)];
}

constexpr std::string_view place_of(PlanChoice choice) {
  return info_of(choice).place;
}

/// The choice of a place, by its name or its former one; nothing: no choice has that place.
std::optional<PlanChoice> choice_of_place(std::string_view place);

}  // namespace fsdp::planner
