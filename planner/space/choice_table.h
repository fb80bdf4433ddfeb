#pragma once

// The choices of a plan as a table, one row each: the member, its names on the command line, its help and the check of
// its text. A new choice is an enumerator and a member of planner/space/plan_choices.h and a row here. The type of the
// member reads and writes its text (render/choice_text.cpp). A row of command/cli_options.cpp names the commands that
// take it, and a row of gui/panels/control_info.cpp is its control in the window.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/joined_names.h"
#include "core/base/limits.h"
#include "core/base/result.h"
#include "core/plan/plan_names.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// A member of PlanChoices.
template <class... T>
using MemberOf = std::variant<std::vector<std::string> PlanChoices::*, std::vector<Dimension> PlanChoices::*,
                              std::vector<OtherModel> PlanChoices::*, std::optional<T> PlanChoices::*...>;
using ChoiceMember = MemberOf<int, std::string, Bytes, Reserve, IntraLink, BytesPerSecond, NetworkKind, bool, double,
                              std::int64_t, Precision, Dtype, OptimizerKind, OptimizerImplementation, OptimizerStates,
                              GradientClipping, fsdp::Initialization, Loss, Framework, ReshardChoice, Wrap,
                              CheckpointChoice, OffloadChoice, GradientSync, DdpArguments, LoraOptions, PackedAttention,
                              AttentionBackend, Quantization, LigerKernels, Float8Training, ExpertDegrees>;

/// An error at `where` if the text has no meaning.
using CheckText = Result<void>(const std::string& text, std::string_view where);
/// The model code that runs: core/plan/runtime.h has the names.
CheckText check_flavor;
/// A release of core/plan/torch_version.h.
CheckText check_torch;
/// PYTORCH_ALLOC_CONF. Its errors name their own places.
CheckText check_allocator_settings;

/// Rules that apply to a few choices.
struct ChoiceRules {
  std::string_view former = {};  ///< Its name in the previous version, if that differs.
  bool repeatable = false;       ///< True if a user may give it several times.
  bool many = false;             ///< True if it takes all words up to the next option.
  std::int64_t least = 1;        ///< For a 64-bit integer.
  std::int64_t most = 0;         ///< For a 64-bit integer. Defaults to the largest that render/read_value.h reads.
  bool is_length = false;        ///< For a 64-bit integer: "4k" is 4096.
  CheckText* check = nullptr;    ///< For a text. Defaults to a check that accepts any text.
};

struct ChoiceRow {
  PlanChoice choice = PlanChoice::Gpus;
  ChoiceMember member;
  std::string_view names;   ///< "--gpus,--nproc-per-node". Errors name the first.
  std::string_view word;    ///< "N": the placeholder in the help.
  std::string_view values;  ///< "bf16|mixed": the allowed values. Empty if any value is allowed.
  std::string_view help;    ///< A sentence without its period.
  ChoiceRules rules = {};
};

/// "adamw|adam|sgd" from a table of names.
template <const auto& kEntries>
struct TextsOf {
  static constexpr std::string_view kNothing{};
  static constexpr std::string_view kBar = "|";
  static constexpr std::string_view kValues = JoinedNames<kEntries, kNothing, kBar, kNothing>::text();
};
/// The help of PlanChoice::Runtime.
struct RuntimeHelp {
  static constexpr std::string_view kComma = ", ";
  static constexpr std::string_view kBefore = "Data parallelism that is planned, fsdp2 by default: ";
  static constexpr std::string_view kAfter = "; all compares them";
  static constexpr std::string_view kText = JoinedNames<kRuntimes, kBefore, kComma, kAfter>::text();
};

inline constexpr ChoiceRow kChoiceRows[] = {
    {PlanChoice::Gpus, &PlanChoices::gpus, "--gpus,--nproc-per-node", "N", "", "GPUs per node"},
    {PlanChoice::Nodes, &PlanChoices::nodes, "--nodes,--nnodes", "N", "", "Nodes (default: 1)"},
    {PlanChoice::GpuName, &PlanChoices::gpu_name, "--gpu", "NAME", "",
     "GPU, such as T4 or \"H100 SXM\" (see fsdp-plan gpus)"},
    {PlanChoice::Memory, &PlanChoices::memory, "--mem,--memory", "SIZE", "", "Memory of a GPU, such as 16G"},
    {PlanChoice::ReserveMemory, &PlanChoices::reserve, "--reserve", "SIZE|SHARE", "",
     "Memory of each GPU that other programs take, such as an inference engine: 30G or 40%"},
    {PlanChoice::ClusterFile, &PlanChoices::cluster_file, "--cluster", "FILE|NAME", "", "Cluster, by file or by name"},
    {PlanChoice::IntraLinkName, &PlanChoices::intra_link, "--intra-link", "KIND", "nvswitch|nvlink|pcie-peer|pcie-host",
     "Link between the GPUs of a node"},
    {PlanChoice::IntraBandwidth, &PlanChoices::intra_bandwidth, "--intra-bandwidth", "RATE", "",
     "Nominal bandwidth of that link per GPU and direction, such as 300GB/s"},
    {PlanChoice::BusBandwidth, &PlanChoices::bus_bandwidth, "--bus-bandwidth", "RATE", "",
     "Rate of large collectives in a node: busbw of nccl-tests, such as 12GB/s"},
    {PlanChoice::NetworkName, &PlanChoices::network, "--network", "KIND", "infiniband|roce|ethernet|efa|slingshot|tcpx",
     "Network between the nodes"},
    {PlanChoice::NicBandwidth, &PlanChoices::nic_bandwidth, "--nic-bandwidth", "RATE", "",
     "Bandwidth of a NIC per direction"},
    {PlanChoice::GpusPerNic, &PlanChoices::gpus_per_nic, "--gpus-per-nic", "N", "", "GPUs that share a NIC"},
    {PlanChoice::Sharp, &PlanChoices::sharp, "--sharp", "yes|no", "yes|no",
     "Switches that reduce (NCCL's CollNet plugin)"},
    {PlanChoice::NcclVersion, &PlanChoices::nccl_version, "--nccl-version", "VERSION", "",
     "Version of NCCL, such as 2.27.5"},
    {PlanChoice::NcclAlgorithms, &PlanChoices::nccl_algorithms, "--nccl-algo", "LIST", "",
     "NCCL_ALGO, such as Ring,Tree or ^NVLS"},
    {PlanChoice::NcclProtocols, &PlanChoices::nccl_protocols, "--nccl-proto", "LIST", "", "NCCL_PROTO, such as Simple"},
    {PlanChoice::NodeSpread, &PlanChoices::node_spread, "--node-spread", "SHARE", "",
     "How far nodes differ in speed, as a share (default: 0.035; 0: all alike)"},
    {PlanChoice::HostMemory, &PlanChoices::host_memory, "--host-mem", "SIZE", "",
     "Host memory of a node, for CPU offload"},
    {PlanChoice::NvmeBandwidth, &PlanChoices::nvme_bandwidth, "--nvme-bandwidth", "RATE", "",
     "Rate of a node's NVMe drives, read or written, such as 6GB/s"},
    {PlanChoice::NvmeCapacity, &PlanChoices::nvme_capacity, "--nvme-capacity", "SIZE", "",
     "Capacity of a node's NVMe drives"},
    {PlanChoice::Recipe, &PlanChoices::recipe, "--recipe", "NAME", "", "Training recipe defined by the model"},
    {PlanChoice::Batch, &PlanChoices::batch, "--batch", "N", "", "Samples per GPU and micro-batch"},
    {PlanChoice::Sequence,
     &PlanChoices::sequence,
     "--seq",
     "N",
     "",
     "Tokens per sample, such as 4096 or 4k",
     {.is_length = true}},
    {PlanChoice::Packing,
     &PlanChoices::packing,
     "--packing",
     "N",
     "",
     "Documents are packed: a micro-batch is one row of N tokens, such as 8192 or 8k (--batch rows with flex)",
     {.is_length = true}},
    {PlanChoice::DocumentLength, &PlanChoices::document_length, "--document-length", "TOKENS|FILE", "",
     "Their length (900), with its deviation (900:300), row for one, or a file with a length in each line (default: "
     "512)"},
    {PlanChoice::PackedAttentionName, &PlanChoices::packed_attention, "--packed-attention", "NAME",
     TextsOf<kPackedAttentions>::kValues,
     "What keeps them apart: flash-attn's or PyTorch's kernel with boundaries, a mask of N x N, or FlexAttention"},
    {PlanChoice::AttentionName, &PlanChoices::attention, "--attention", "NAME", TextsOf<kAttentionBackends>::kValues,
     "Attention of rows without packing: PyTorch's choice, one of its kernels, written out (eager), or flash-attn's"},
    {PlanChoice::GlobalBatch, &PlanChoices::global_batch, "--global-batch", "N", "",
     "Samples per optimizer step, over all GPUs; micro-batch and accumulation are searched"},
    {PlanChoice::Accumulate,
     &PlanChoices::accumulation,
     "--accumulate",
     "N",
     "",
     "Micro-batches per optimizer step",
     {.most = kMostMicroBatches}},
    {PlanChoice::SetDimension,
     &PlanChoices::dimensions,
     "--set",
     "NAME=VALUE",
     "",
     "Any other dimension of the model",
     {.repeatable = true}},
    {PlanChoice::Trainable,
     &PlanChoices::trainable,
     "--trainable",
     "PATTERN...",
     "",
     "Train only the parameters that match",
     {.repeatable = true, .many = true}},
    {PlanChoice::Freeze,
     &PlanChoices::frozen,
     "--freeze,--frozen",
     "PATTERN...",
     "",
     "Freeze the parameters that match",
     {.repeatable = true, .many = true}},
    {PlanChoice::Lora, &PlanChoices::lora, "--lora", "ADAPTERS", "",
     "Train PEFT's LoRA adapters alone: their rank, or r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05 (default: all "
     "linear layers but the head)"},
    {PlanChoice::Quantize, &PlanChoices::quantization, "--quantize", "BITS", "",
     "Store the frozen base below --lora in four bits of bitsandbytes: nf4 or fp4, with ,double or ,uint8"},
    {PlanChoice::Liger, &PlanChoices::liger, "--liger", "KERNELS", "",
     "Kernels of liger-kernel, all or of rope, rms_norm and glu"},
    {PlanChoice::Float8, &PlanChoices::float8, "--fp8", "RECIPE", "",
     "Linear layers in 8-bit floats of torchao: tensorwise, rowwise or rowwise_with_gw_hp, with ,all_gather "
     ",precompute "
     "and ,skip=NAMES"},
    {PlanChoice::Also,
     &PlanChoices::also,
     "--also",
     "MODEL",
     "",
     "Another model on the same GPUs that is not trained, such as DPO's reference; after it ,wrap= ,offload= ,dtype= "
     "and ,turn= (default: as TRL holds it)",
     {.repeatable = true}},
    {PlanChoice::Precision, &PlanChoices::precision, "--precision", "NAME",
     "bf16|mixed|fp16|fp16-mixed|fp32|autocast|accelerate",
     "All in that dtype; mixed: fp32 weights, bf16 compute, fp32 reduce; autocast, or accelerate's bf16"},
    {PlanChoice::ReduceDtype, &PlanChoices::reduce_dtype, "--reduce-dtype", "DTYPE", "float32|bfloat16|float16",
     "Dtype in which gradients are reduced"},
    {PlanChoice::OptimizerName, &PlanChoices::optimizer, "--optimizer", "NAME", TextsOf<kOptimizerKinds>::kValues,
     "Optimizer"},
    {PlanChoice::OptimizerImpl, &PlanChoices::optimizer_implementation, "--optimizer-impl", "NAME",
     TextsOf<kOptimizerImplementations>::kValues, "PyTorch's implementation of the optimizer"},
    {PlanChoice::OptimizerStatesName,
     &PlanChoices::optimizer_states,
     "--optimizer-state-dtype",
     "NAME",
     TextsOf<kOptimizerStates>::kValues,
     "Precision of the states of PyTorch's optimizers",
     {.former = "--states"}},
    {PlanChoice::Muon, &PlanChoices::muon, "--muon", "yes|no", "yes|no",
     "Update the weights of linear layers in blocks by torch.optim.Muon, and the rest by --optimizer"},
    {PlanChoice::Clip,
     &PlanChoices::clip,
     "--clip-grad-norm",
     "NORM",
     "none",
     "Maximum gradient norm, or none for no clipping",
     {.former = "--clip"}},
    {PlanChoice::Initialization, &PlanChoices::initialization, "--initialization", "WHERE",
     TextsOf<kInitializations>::kValues,
     "Where the model is made before it is sharded: on the meta device, in the memory of the CPU, or whole "
     "on each GPU"},
    {PlanChoice::Flavor,
     &PlanChoices::flavor,
     "--flavor",
     "NAME",
     "transformers|transformers-repeat-kv|torchtitan|torchtitan-0.3|automodel|automodel-hf",
     "Library whose code is predicted",
     {.former = "--flavour", .check = check_flavor}},
    {PlanChoice::LossName,
     &PlanChoices::loss,
     "--loss",
     "NAME",
     TextsOf<kLosses>::kValues,
     "Loss of a language model; all but pytorch and flash_attn make the logits a part at a time",
     {.former = "--cross-entropy"}},
    {PlanChoice::PaddingMask, &PlanChoices::padding_mask, "--padding-mask", "yes|no", "yes|no",
     "Rows of a batch end in padding, of which transformers makes a mask for PyTorch's attention (default: no; yes "
     "with "
     "--lengths)"},
    {PlanChoice::AllocConf,
     &PlanChoices::allocator_settings,
     "--alloc-conf",
     "TEXT",
     "",
     "PYTORCH_ALLOC_CONF, such as expandable_segments:True",
     {.check = check_allocator_settings}},
    {PlanChoice::Torch,
     &PlanChoices::torch,
     "--torch",
     "VERSION",
     "2.8|2.9|2.10|2.11|2.12|2.13|2.14|2.15",
     "Release of PyTorch that is predicted (default: 2.11)",
     {.check = check_torch}},
    {PlanChoice::Runtime, &PlanChoices::runtime, "--runtime", "NAME", TextsOf<kRuntimes>::kValues, RuntimeHelp::kText},
    {PlanChoice::DeepSpeedFile, &PlanChoices::deepspeed_file, "--deepspeed", "FILE", "",
     "DeepSpeed's configuration: its stage, buffers, batch, precision, optimizer and clipping; other "
     "options override it"},
    {PlanChoice::Strategy, &PlanChoices::strategy, "--strategy", "NAME",
     "FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|_HYBRID_SHARD_ZERO2", "Sharding strategy in FSDP1's names"},
    {PlanChoice::Shard, &PlanChoices::shard, "--shard", "N", "", "GPUs over which one copy of the model is sharded"},
    {PlanChoice::Replicate, &PlanChoices::replicate, "--replicate", "N", "", "Copies of the model"},
    {PlanChoice::ExpertParallel, &PlanChoices::expert_parallel, "--ep", "N", "",
     "GPUs that share the experts of a layer (transformers' ep_size); 1,2,4,8 tries each (default: 1)"},
    {PlanChoice::Reshard, &PlanChoices::reshard, "--reshard", "WHAT", "true|false",
     "reshard_after_forward: true, false, all (the root's, too), a smaller world size, keep-last:4"},
    {PlanChoice::Wrap, &PlanChoices::wrap, "--wrap", "WHAT", "blocks|sublayers|projections|root",
     "Units: blocks, 4 (blocks in one), sublayers (attention, MLP), projections, root, names with commas "
     "(model.layers.*), or as PyTorch's auto-wrap policies: size:100M (elements), class:NAME,NAME"},
    {PlanChoice::WrapEnds, &PlanChoices::wrap_ends, "--wrap-ends", "yes|no", "yes|no",
     "Wrap embeddings and heads as separate units"},
    {PlanChoice::Checkpoint,
     &PlanChoices::checkpoint,
     "--activation-checkpointing",
     "WHAT",
     "none|full|selective",
     "Activation checkpointing: none, full, nested (in its modules, too), reentrant, selective (attention and every "
     "second matmul are saved), save-matmuls (attention and all of them), save-attention; of the first 12 blocks of "
     "each stack: full:12; of each stack its own number: full:32,12",
     {.former = "--checkpoint"}},
    {PlanChoice::CheckpointOffload, &PlanChoices::checkpoint_offload, "--checkpoint-offload", "yes|no", "yes|no",
     "Keep the inputs of checkpointed blocks in pinned host memory"},
    {PlanChoice::Offload, &PlanChoices::cpu_offload, "--offload", "yes|no|nvme", "yes|no|nvme",
     "Keep parameters, gradients and optimizer in CPU memory, or on NVMe drives (ZeRO-3)"},
    {PlanChoice::GradientSync, &PlanChoices::gradient_sync, "--gradient-sync", "WHEN", "every|last",
     "Micro-batches after which gradients are reduced: every one, or the last of a step (no_sync before)"},
    {PlanChoice::Prefetch,
     &PlanChoices::forward_prefetch,
     "--prefetch",
     "N",
     "",
     "Units to prefetch in forward",
     {.least = 0}},
    {PlanChoice::BackwardPrefetch,
     &PlanChoices::backward_prefetch,
     "--backward-prefetch",
     "N",
     "",
     "Units to prefetch in backward",
     {.least = 0}},
    {PlanChoice::ReduceScatterBuffers, &PlanChoices::reduce_scatter_buffers, "--reduce-scatter-buffers", "N", "",
     "Inputs of reduce-scatters that live at once (PyTorch 2.13 and later; default: 1)"},
    {PlanChoice::SeparateReduceScatter, &PlanChoices::separate_reduce_scatter, "--separate-reduce-scatter", "yes|no",
     "yes|no", "Reduce-scatters with a communicator of their own (PyTorch 2.13 and later)"},
    {PlanChoice::Ddp, &PlanChoices::ddp_arguments, "--ddp-arguments", "WHICH", "searched|defaults|find-unused",
     "DDP's arguments: searched, PyTorch's defaults, or these with find_unused_parameters"},
    {PlanChoice::CudaGraphs, &PlanChoices::cuda_graphs, "--cuda-graphs", "yes|no", "yes|no",
     "Replay forward and backward as a CUDA graph, as torchtitan 0.3 does (PyTorch 2.13 and later; default: no)"}};

constexpr const ChoiceRow& row_of(PlanChoice choice) {
  return kChoiceRows[static_cast<std::size_t>(choice)];
}
static_assert(
    [] {
      bool good = std::size(kChoiceRows) == kNumPlanChoices;
      for (std::size_t i = 0; i < kNumPlanChoices && good; ++i) {
        good = static_cast<std::size_t>(kChoiceRows[i].choice) == i;
      }
      return good;
    }(),
    "a row for each choice, in the order of the enum");

constexpr std::string_view place_of(const ChoiceRow& row) {
  return row.names.substr(0, row.names.find(','));
}

}  // namespace fsdp::planner
