#pragma once

// The choices of a user before a search: the machines, the work, and the fixed parts of the plan.
//
// Plain values, each absent if the user did not decide. The command reads them from its options, and the window from
// its controls; a remedy consists of some of them. planner/request/plan_request.h combines them with the values of a
// recipe and a model.

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

/// The tensors that a plan offloads from the devices.
struct OffloadChoice {
  bool is_on = false;
  bool to_drive = false;  ///< For ZeRO-3: the optimizer's tensors are on an NVMe drive instead of in host memory.

  constexpr OffloadChoice() = default;
  constexpr OffloadChoice(bool on, bool drive = false) : is_on(on), to_drive(drive) {}
  constexpr explicit operator bool() const { return is_on; }
  bool operator==(const OffloadChoice&) const = default;
};

/// The reason why plans of this framework cannot offload there. `nullopt` if they can.
std::optional<Error> offload_misfit(const OffloadChoice& choice, std::optional<Framework> framework);

/// Offloads a plan according to the choice, or keeps it on the devices.
void apply_offload(Plan& plan, const OffloadChoice& choice);

/// One choice. planner/space/choice_table.h has a row for each.
enum class PlanChoice : std::uint8_t {
  // The machines.
  Gpus,
  Nodes,
  GpuName,
  Memory,
  ReserveMemory,
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
  Packing,
  DocumentLength,
  PackedAttentionName,
  AttentionName,
  GlobalBatch,
  Accumulate,
  SetDimension,
  Trainable,
  Freeze,
  Lora,
  Quantize,
  Liger,
  Float8,
  Also,
  Precision,
  ReduceDtype,
  OptimizerName,
  OptimizerImpl,
  OptimizerStatesName,
  Muon,
  Clip,
  Initialization,
  Flavor,
  LossName,
  PaddingMask,
  AllocConf,
  Torch,
  // The plan.
  Runtime,
  DeepSpeedFile,
  Strategy,
  Shard,
  Replicate,
  ExpertParallel,
  Reshard,
  Wrap,
  WrapEnds,
  Checkpoint,
  CheckpointOffload,
  Offload,
  GradientSync,
  Prefetch,
  BackwardPrefetch,
  ReduceScatterBuffers,
  SeparateReduceScatter,
  Ddp,
  CudaGraphs,
};
inline constexpr int kNumPlanChoices = static_cast<int>(PlanChoice::CudaGraphs) + 1;

/// All of them, in the order of the enum.
std::span<const PlanChoice> plan_choices();

/// The dtypes of parameters, compute and reduction in one word.
enum class Precision : std::uint8_t {
  BFloat16,  ///< All three in it, as for Float16 and Float32.
  Mixed,     ///< float32 weights, bfloat16 compute, float32 reduce.
  Float16,
  MixedFloat16,  ///< As Mixed, with float16.
  Float32,
  Autocast,    ///< float32 weights of what is trained, and the forward under torch.autocast in bfloat16. Under FSDP2
               ///< and FSDP1 beside Mixed.
  Accelerate,  ///< accelerate's mixed_precision "bf16". FSDP2: float32 weights, and all else in bfloat16, without
               ///< autocast. FSDP1: the same and buffers in it, under autocast. DDP: autocast alone. The outputs of a
               ///< model under autocast are copied to float32.
};

/// The micro-batches after which gradients are reduced: set_requires_gradient_sync.
enum class GradientSync : std::uint8_t {
  Every,
  Last,  ///< Until then, each rank holds the unsharded gradients of its own samples.
};

/// Who chooses the arguments of DistributedDataParallel.
enum class DdpArguments : std::uint8_t {
  Searched,    ///< The planner: gradients as views of their buckets, whose size is searched.
  Defaults,    ///< PyTorch: gradients beside their buckets of 25 MiB.
  FindUnused,  ///< Defaults, but find_unused_parameters=True.
};

struct GradientClipping {
  std::optional<double> norm;  ///< Empty if gradients are not clipped.

  bool operator==(const GradientClipping&) const = default;
};

/// How many ranks share the experts of a layer: one number, or those that a search tries.
struct ExpertDegrees {
  std::vector<std::int64_t> ranks;  ///< Rising, each at least 1.

  bool operator==(const ExpertDegrees&) const = default;
};

struct PlanChoices {
  // The machines.
  std::optional<int> gpus = {};                  ///< GPUs of a node. Any integer; the cluster checks it.
  std::optional<int> nodes = {};                 ///< Like `gpus`.
  std::optional<std::string> gpu_name = {};      ///< From the library; a prefix of the name suffices.
  std::optional<Bytes> memory = {};              ///< Memory of a GPU.
  std::optional<Reserve> reserve = {};           ///< Memory of each GPU that other programs take.
  std::optional<std::string> cluster_file = {};  ///< A file, or the name of a shipped cluster.
  std::optional<IntraLink> intra_link = {};
  std::optional<BytesPerSecond> intra_bandwidth = {};  ///< Nominal bandwidth of one GPU per direction.
  std::optional<BytesPerSecond> bus_bandwidth = {};    ///< Bus bandwidth that large collectives of a node reach, as
                                                       ///< nccl-tests defines it.
  std::optional<NetworkKind> network = {};
  std::optional<BytesPerSecond> nic_bandwidth = {};
  std::optional<int> gpus_per_nic = {};
  std::optional<bool> sharp = {};
  std::optional<std::string> nccl_version = {};       ///< "2.27.5"
  std::optional<std::string> nccl_algorithms = {};    ///< NCCL_ALGO.
  std::optional<std::string> nccl_protocols = {};     ///< NCCL_PROTO.
  std::optional<double> node_spread = {};             ///< Standard deviation of the nodes' times, as a fraction.
  std::optional<Bytes> host_memory = {};              ///< Memory of a node.
  std::optional<BytesPerSecond> nvme_bandwidth = {};  ///< Bandwidth of a node's drives.
  std::optional<Bytes> nvme_capacity = {};            ///< Capacity of a node's drives.

  // The work.
  std::optional<std::string> recipe = {};
  std::optional<std::int64_t> batch = {};           ///< Samples per GPU and micro-batch.
  std::optional<std::int64_t> sequence = {};        ///< Tokens per sample.
  std::optional<std::int64_t> packing = {};         ///< Tokens of the packed row that is a micro-batch.
  std::optional<std::string> document_length = {};  ///< What core/plan/packing.h reads, or a file of lengths.
  std::optional<fsdp::PackedAttention> packed_attention = {};
  std::optional<AttentionBackend> attention = {};
  std::optional<std::int64_t> global_batch = {};  ///< Samples per optimizer step, over all GPUs.
  std::optional<std::int64_t> accumulation = {};  ///< Micro-batches per optimizer step.
  std::vector<Dimension> dimensions = {};         ///< The model's other sizes, as the user gave them.
  std::vector<std::string> trainable = {};        ///< Patterns of parameter names.
  std::vector<std::string> frozen = {};
  std::optional<LoraOptions> lora = {};           ///< Adapters.
  std::optional<Quantization> quantization = {};  ///< The base below them is stored so.
  std::optional<LigerKernels> liger = {};         ///< Kernels of Liger in place of parts of the model.
  std::optional<Float8Training> float8 = {};      ///< Linear layers that multiply in 8-bit floats.
  std::vector<OtherModel> also = {};              ///< Models beside the trained one.
  std::optional<Precision> precision = {};
  std::optional<Dtype> reduce_dtype = {};
  std::optional<OptimizerKind> optimizer = {};
  std::optional<OptimizerImplementation> optimizer_implementation = {};
  std::optional<OptimizerStates> optimizer_states = {};
  std::optional<bool> muon = {};  ///< Whether torch.optim.Muon updates the matrices, and the optimizer the rest.
  std::optional<GradientClipping> clip = {};
  std::optional<fsdp::Initialization> initialization = {};
  std::optional<std::string> flavor = {};  ///< The model code that runs: core/plan/runtime.h has the names.
  std::optional<Loss> loss = {};
  std::optional<bool> padding_mask = {};  ///< Whether rows end in padding, of which the model makes a mask.
  std::optional<std::string> allocator_settings = {};  ///< PYTORCH_ALLOC_CONF.
  std::optional<std::string> torch = {};               ///< Release of PyTorch: core/plan/torch_version.h has them.

  // The plan.
  std::optional<Framework> runtime = {};
  std::optional<std::string> deepspeed_file = {};  ///< A ds_config.json. Other choices override its values.
  std::optional<std::string> strategy = {};        ///< FSDP1's name for it, from planner/space/strategy_names.h.
  std::optional<std::int64_t> shard = {};
  std::optional<std::int64_t> replicate = {};
  std::optional<ExpertDegrees> expert_parallel = {};
  std::optional<ReshardChoice> reshard = {};
  std::optional<Wrap> wrap = {};
  std::optional<bool> wrap_ends = {};
  std::optional<CheckpointChoice> checkpoint = {};
  std::optional<bool> checkpoint_offload = {};  ///< Checkpointing::offload_inputs.
  std::optional<OffloadChoice> cpu_offload = {};
  std::optional<GradientSync> gradient_sync = {};
  std::optional<std::int64_t> forward_prefetch = {};
  std::optional<std::int64_t> backward_prefetch = {};
  std::optional<std::int64_t> reduce_scatter_buffers = {};
  std::optional<bool> separate_reduce_scatter = {};
  std::optional<DdpArguments> ddp_arguments = {};
  std::optional<bool> cuda_graphs = {};  ///< Plan::cuda_graphs.

  bool operator==(const PlanChoices&) const = default;
};

/// True if the user decided it.
bool has(const PlanChoices& choices, PlanChoice choice);
void clear(PlanChoices& choices, PlanChoice choice);

/// The choices for which `is_wanted` is true.
PlanChoices only(PlanChoices choices, bool (*is_wanted)(PlanChoice));

/// `choices` with the decisions of `change`: patterns and sizes are added, all others replace.
PlanChoices with_change(PlanChoices choices, const PlanChoices& change);

/// The model's own size `name` as a choice: `batch`, `sequence`, or one of `dimensions`.
PlanChoices size_choice(const std::string& name, double value);

bool is_about_machines(PlanChoice choice);
/// True if the choice is about the plan, so that a given plan already decides it.
bool is_about_plan(PlanChoice choice);

/// "--gpus": the `Error::where` of a wrong choice, and its key in project files.
std::string_view place_of(PlanChoice choice);

/// The choice of a place, by its current or former name. `nullopt` if no choice has it.
std::optional<PlanChoice> choice_of_place(std::string_view place);

}  // namespace fsdp::planner
