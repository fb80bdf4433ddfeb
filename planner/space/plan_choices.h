#pragma once

// What a user decides about a plan before it is searched: machines, work, and what of the plan itself is fixed.
//
// Plain values, each absent where the user did not decide. The command reads them from its options, the window from its
// controls, and a remedy is some of them. What they come to, with a recipe's and a model's own values where nothing is
// said, is for planner/request/plan_request.h.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"

namespace fsdp::planner {

inline constexpr int kLargestWorld = 16'384;  ///< GPUs of the largest runs with published times (Llama 3).

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

/// One thing to decide. planner/space/choice_table.h has a row for each.
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
  std::optional<std::string> strategy = {};        ///< FSDP1's name, of planner/space/strategy_names.h.
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

/// "--gpus": `Error::where` of what is wrong with a choice, and its key in project files.
std::string_view place_of(PlanChoice choice);

/// The choice of a place, by its name or its former one; nothing: no choice has that place.
std::optional<PlanChoice> choice_of_place(std::string_view place);

}  // namespace fsdp::planner
