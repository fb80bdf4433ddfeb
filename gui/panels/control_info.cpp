#include "gui/panels/control_info.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/parse_units.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version.h"
#include "planner/checkpointed_blocks.h"
#include "planner/strategy_names.h"
#include "planner/wrapping.h"
#include "text/figures.h"

namespace fsdp::gui {

using planner::PlanChoice;

namespace {

std::vector<std::string> choices_of(PlanChoice choice) {
  std::vector<std::string> choices;
  const std::string_view all = planner::info_of(choice).values;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('|', begin), all.size());
    choices.emplace_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

constexpr std::string_view kMachines = "Machines";
constexpr std::string_view kWork = "Work";
constexpr std::string_view kPlan = "Plan";
constexpr std::string_view kRuntime = "Optimizer and runtime";

std::vector<ControlInfo> make_infos() {
  using Kind = ControlKind;
  const std::vector<std::int64_t> powers = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  const std::vector<std::int64_t> counts = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::int64_t> memories = {8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 141, 192};
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 128; length <= 131072; length *= 2) lengths.push_back(length);
  std::vector<ControlInfo> infos = {
      {PlanChoice::ClusterFile, "Cluster", kMachines, Kind::Open, {}, {}},
      {PlanChoice::GpuName, "GPU", kMachines, Kind::Open, {}, {}},
      {PlanChoice::Gpus, "GPUs per node", kMachines, Kind::Count, counts, {}},
      {PlanChoice::Nodes, "Nodes", kMachines, Kind::Count, powers, {}},
      {PlanChoice::Memory, "Memory of a GPU", kMachines, Kind::Size, memories, {}},
      {PlanChoice::IntraLinkName, "Link within a node", kMachines, Kind::Choice, {}, {}},
      {PlanChoice::IntraBandwidth, "Link bandwidth", kMachines, Kind::Text, {}, {}},
      {PlanChoice::NetworkName, "Network", kMachines, Kind::Choice, {}, {}},
      {PlanChoice::NicBandwidth, "Network bandwidth", kMachines, Kind::Text, {}, {}},
      {PlanChoice::HostMemory, "Host RAM per node", kMachines, Kind::Size, {64, 128, 256, 512, 1024, 2048}, {}},
      {PlanChoice::NvmeCapacity,
       "NVMe per node",
       kMachines,
       Kind::Size,
       {512, 1024, 2048, 4096, 8192, 16384, 32768},
       {}},
      {PlanChoice::NvmeBandwidth, "NVMe bandwidth", kMachines, Kind::Text, {}, {}},

      {PlanChoice::Recipe, "Recipe", kWork, Kind::Choice, {}, {}},
      {PlanChoice::Batch, "Micro-batch", kWork, Kind::Count, {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}, {}},
      {PlanChoice::Sequence, "Sequence length", kWork, Kind::Count, lengths, {}},
      {PlanChoice::Accumulate, "Accumulation", kWork, Kind::Count, {1, 2, 4, 8, 16, 32, 64}, {}},
      {PlanChoice::GlobalBatch, "Global batch", kWork, Kind::Count, {8, 16, 32, 64, 128, 256, 512, 1024}, {}},
      {PlanChoice::Precision, "Precision", kWork, Kind::Choice, {}, {}},
      {PlanChoice::ReduceDtype, "Reduce dtype", kWork, Kind::Choice, {}, {}},

      {PlanChoice::Runtime, "Data parallelism", kPlan, Kind::Choice, {}, {}},
      {PlanChoice::Strategy, "Strategy", kPlan, Kind::Choice, {}, {}},
      {PlanChoice::Shard, "Shard over", kPlan, Kind::Count, powers, {}},
      {PlanChoice::Reshard, "Reshard after forward", kPlan, Kind::Open, {}, {"true", "false", "keep-last:4"}},
      {PlanChoice::Wrap, "FSDP units", kPlan, Kind::Open, {}, {"blocks", "2", "4", "sublayers", "projections", "root"}},
      {PlanChoice::WrapEnds, "Wrap embeddings/head", kPlan, Kind::Choice, {}, {}},
      {PlanChoice::Checkpoint,
       "Checkpointing",
       kPlan,
       Kind::Open,
       {},
       {"none", "full", "selective", "save-matmuls", "save-attention", "full:8"}},
      {PlanChoice::Offload, "Offload", kPlan, Kind::Choice, {}, {}},
      {PlanChoice::GradientSync, "Reduce gradients", kPlan, Kind::Choice, {}, {}},
      {PlanChoice::Prefetch, "Forward prefetch", kPlan, Kind::Count, {0, 1, 2, 3, 4}, {}},
      {PlanChoice::BackwardPrefetch, "Backward prefetch", kPlan, Kind::Count, {0, 1, 2, 3, 4}, {}},
      {PlanChoice::ReduceScatterBuffers, "Reduce buffers", kPlan, Kind::Count, {1, 2, 3, 4}, {}},
      {PlanChoice::SeparateReduceScatter, "Separate reductions", kPlan, Kind::Choice, {}, {}},

      {PlanChoice::Torch, "PyTorch", kRuntime, Kind::Choice, {}, {}},
      {PlanChoice::OptimizerName, "Optimizer", kRuntime, Kind::Choice, {}, {}},
      {PlanChoice::OptimizerImpl, "Implementation", kRuntime, Kind::Choice, {}, {}},
      {PlanChoice::OptimizerStatesName, "Optimizer states", kRuntime, Kind::Choice, {}, {}},
      {PlanChoice::Clip, "Gradient clipping", kRuntime, Kind::Open, {}, {"none", "1"}},
      {PlanChoice::Initialization, "Initialized on", kRuntime, Kind::Choice, {}, {}},
      {PlanChoice::Flavor, "Model code", kRuntime, Kind::Choice, {}, {}},
      {PlanChoice::CrossEntropy, "Cross entropy", kRuntime, Kind::Choice, {}, {}},
      {PlanChoice::AllocConf, "Allocator", kRuntime, Kind::Open, {}, {"expandable_segments:True"}},
  };
  for (ControlInfo& info : infos) {
    if (info.kind == Kind::Choice && info.choices.empty()) info.choices = choices_of(info.choice);
  }
  return infos;
}

std::string precision_of(const Plan& plan) {
  const auto& mixed = plan.mixed_precision;
  if (!plan.parameter_dtype && !mixed.param_dtype) return "(the checkpoint's)";
  const Dtype stored = plan.parameter_dtype.value_or(Dtype::Float32);
  if (!mixed.param_dtype) {
    return stored == Dtype::BFloat16 ? "bf16" : stored == Dtype::Float16 ? "fp16" : "fp32";
  }
  if (stored == Dtype::Float32 && *mixed.param_dtype == Dtype::BFloat16) return "mixed";
  if (stored == Dtype::Float32 && *mixed.param_dtype == Dtype::Float16) return "fp16-mixed";
  return "(own)";
}

std::string reshard_of(const Plan& plan) {
  std::int64_t never = 0;
  std::int64_t below_root = 0;
  std::int64_t smaller = 0;
  for (const Unit& unit : plan.units) {
    if (is_root(unit)) continue;
    ++below_root;
    if (unit.reshard_after_forward.kind == ReshardAfterForward::Kind::Never) ++never;
    if (unit.reshard_after_forward.kind == ReshardAfterForward::Kind::Smaller) {
      smaller = unit.reshard_after_forward.world_size;
    }
  }
  if (below_root == 0) return "";
  if (never == below_root) return "false";
  if (never > 0) return fmt::format("({} of {} false)", never, below_root);
  return smaller > 0 ? std::to_string(smaller) : "true";
}

std::string checkpoint_of(const Plan& plan, const Model* model) {
  const auto& entries = plan.checkpointing.entries;
  if (entries.empty()) return "none";
  const auto way = planner::way_of(plan.checkpointing);
  const std::string name = way ? planner::to_text(*way) : "in several ways";
  std::size_t blocks = 0;
  if (model != nullptr) {
    for (const Stack& stack : model->stacks) blocks += stack.calls.size();
  }
  if (entries.size() == blocks) return name;
  return fmt::format("({} of {}, {})", entries.size(), blocks, name);
}

std::string ends_of(const Snapshot& snapshot) {
  if (!snapshot.model) return "";
  const planner::Wrappables wrappables = planner::wrappables_of(*snapshot.model);
  if (wrappables.ends.empty()) return "";
  const std::string& name = snapshot.model->modules[wrappables.ends.front()].name;
  return unit_of(snapshot.report.plan, name) >= 0 ? "yes" : "no";
}

/// "31.5GB/s" as people write it: "31.5 GB/s".
std::string spaced(std::string quantity) {
  const std::size_t unit = quantity.find_first_not_of("0123456789.");
  if (unit != std::string::npos && unit > 0) quantity.insert(unit, " ");
  return quantity;
}

/// The name of a cluster if it has one; otherwise the number of GPUs, whose name stands in its own field.
std::string cluster_text(const Cluster& cluster) {
  if (cluster.name.empty()) return "";
  const bool is_named = cluster.name.find("x " + cluster.gpu.name) == std::string::npos &&
                        cluster.name.find(" GPUs of ") == std::string::npos;
  if (is_named) return "(" + cluster.name + ")";
  if (cluster.nodes == 1) return fmt::format("({})", planner::counted(cluster.gpus_per_node, "GPU"));
  return fmt::format("({} nodes x {} GPUs)", cluster.nodes, cluster.gpus_per_node);
}

/// Nobody chose a stand-in GPU; its memory has its own field.
std::string gpu_text(const Gpu& gpu) {
  return is_stand_in(gpu) ? "(like " + card_of(gpu) + ")" : gpu.name;
}

std::string machine_text(PlanChoice choice, const Cluster& cluster) {
  switch (choice) {
    case PlanChoice::ClusterFile:
      return cluster_text(cluster);
    case PlanChoice::GpuName:
      return gpu_text(cluster.gpu);
    case PlanChoice::Gpus:
      return std::to_string(cluster.gpus_per_node);
    case PlanChoice::Nodes:
      return std::to_string(cluster.nodes);
    case PlanChoice::Memory:
      return exact_size(cluster.gpu.memory.value);
    case PlanChoice::IntraLinkName:
      return std::string(name_of(kIntraLinkNames, cluster.intra_node.kind));
    case PlanChoice::IntraBandwidth:
      return spaced(exact_bandwidth(cluster.intra_node.bandwidth.value));
    case PlanChoice::NetworkName:
      return std::string(name_of(kNetworkNames, cluster.network.kind));
    case PlanChoice::NicBandwidth:
      return spaced(exact_bandwidth(cluster.network.nic_bandwidth.value));
    case PlanChoice::HostMemory:
      return cluster.host_memory ? exact_size(cluster.host_memory->value) : "";
    case PlanChoice::NvmeCapacity:
      return cluster.nvme_capacity ? exact_size(cluster.nvme_capacity->value) : "";
    case PlanChoice::NvmeBandwidth:
      return spaced(exact_bandwidth(nvme_bandwidth(cluster).value));
    default:
      return "";
  }
}

std::string plan_text(PlanChoice choice, const Snapshot& snapshot) {
  const Plan& plan = snapshot.report.plan;
  switch (choice) {
    case PlanChoice::Runtime:
      return std::string(name_of(kRuntimeTable, plan.runtime.framework));
    case PlanChoice::Strategy: {
      if (is_replicated(plan)) return "(" + planner::strategy_name(plan) + ")";
      const std::string name = planner::fsdp1_name(plan);
      return planner::has_mixed_reshard(plan) ? fmt::format("(mixed {})", name) : name;
    }
    case PlanChoice::Shard:
      return std::to_string(plan.mesh.dp_shard());
    case PlanChoice::Reshard:
      return reshard_of(plan);
    case PlanChoice::Wrap:
      return fmt::format("({})", planner::counted(static_cast<std::int64_t>(plan.units.size()), "unit"));
    case PlanChoice::WrapEnds:
      return ends_of(snapshot);
    case PlanChoice::Checkpoint:
      return checkpoint_of(plan, snapshot.model.get());
    case PlanChoice::Offload:
      return plan.zero.nvme.optimizer ? "nvme" : plan.cpu_offload ? "yes" : "no";
    case PlanChoice::GradientSync:
      return plan.sync_every_micro_batch ? "every" : "last";
    case PlanChoice::Prefetch:
      return std::to_string(plan.forward_prefetch);
    case PlanChoice::BackwardPrefetch:
      return std::to_string(plan.backward_prefetch);
    case PlanChoice::ReduceScatterBuffers:
      return std::to_string(plan.reduce_scatter_buffers);
    case PlanChoice::SeparateReduceScatter:
      return plan.separate_reduce_scatter_group ? "yes" : "no";
    default:
      return "";
  }
}

std::string work_text(PlanChoice choice, const Snapshot& snapshot) {
  const Plan& plan = snapshot.report.plan;
  switch (choice) {
    case PlanChoice::Recipe:
      return plan.recipe;
    case PlanChoice::Batch:
      return shown_dimension("batch", snapshot);
    case PlanChoice::Sequence:
      return shown_dimension("seq", snapshot);
    case PlanChoice::Accumulate:
      return std::to_string(plan.accumulation);
    case PlanChoice::GlobalBatch: {
      const std::string batch = shown_dimension("batch", snapshot);
      if (batch.empty()) return "";
      return fmt::format("{}", std::stoll(batch) * micro_batches_of_step(plan));
    }
    case PlanChoice::Precision:
      return precision_of(plan);
    case PlanChoice::ReduceDtype:
      return plan.mixed_precision.reduce_dtype ? std::string(name_of(*plan.mixed_precision.reduce_dtype))
                                               : "(as computed)";
    case PlanChoice::OptimizerName:
      return std::string(name_of(kOptimizerKindTable, plan.optimizer.kind));
    case PlanChoice::OptimizerImpl:
      return std::string(name_of(kOptimizerImplementationTable, plan.optimizer.implementation));
    case PlanChoice::OptimizerStatesName:
      return std::string(name_of(kOptimizerStatesTable, plan.optimizer.states));
    case PlanChoice::Clip:
      return plan.optimizer.clip_grad_norm ? fmt::format("{}", *plan.optimizer.clip_grad_norm) : "none";
    case PlanChoice::Initialization:
      return std::string(name_of(kInitializationTable, plan.initialization));
    case PlanChoice::Flavor:
      return plan.runtime.flavor;
    case PlanChoice::CrossEntropy:
      return std::string(name_of(kCrossEntropyTable, plan.runtime.implementations.cross_entropy));
    case PlanChoice::AllocConf:
      return plan.runtime.allocator_settings;
    case PlanChoice::Torch:
      return std::string(torch_version_of(plan.runtime).name);
    default:
      return "";
  }
}

}  // namespace

std::span<const ControlInfo> control_infos() {
  static const std::vector<ControlInfo> infos = make_infos();
  return infos;
}

std::optional<std::string> own_text(PlanChoice choice, const Inputs& inputs) {
  const std::optional<std::string> text = text_of(inputs, choice);
  const bool is_bandwidth =
      choice == PlanChoice::IntraBandwidth || choice == PlanChoice::NicBandwidth || choice == PlanChoice::NvmeBandwidth;
  if (!text || !is_bandwidth || inputs.unread.contains(choice)) return text;
  return spaced(*text);
}

std::string shown_text(PlanChoice choice, const Snapshot& snapshot) {
  if (is_about_machines(choice)) return machine_text(choice, snapshot.cluster);
  const std::string text = plan_text(choice, snapshot);
  return text.empty() ? work_text(choice, snapshot) : text;
}

std::string shown_dimension(const std::string& name, const Snapshot& snapshot) {
  const Dimension* found = find_dimension(snapshot.report.plan.dimensions, name);
  return found == nullptr ? "" : fmt::format("{}", found->value);
}

}  // namespace fsdp::gui
