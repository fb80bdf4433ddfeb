#include "gui/panels/control_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/parse_units.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/choice_table.h"
#include "planner/space/chosen_precision.h"
#include "planner/space/strategy_names.h"
#include "planner/space/wrapping.h"
#include "text/figures.h"

namespace fsdp::gui {

using planner::PlanChoice;

namespace {

std::vector<std::string> choices_of(PlanChoice choice) {
  std::vector<std::string> choices;
  const std::string_view all = planner::row_of(choice).values;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('|', begin), all.size());
    choices.emplace_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

std::string precision_of(const Plan& plan) {
  const auto& mixed = plan.mixed_precision;
  if (!plan.parameter_dtype && !mixed.param_dtype) return "(the checkpoint's)";
  const Dtype stored = plan.parameter_dtype.value_or(Dtype::Float32);
  if (stored == Dtype::Float32 && planner::is_mixed_as_accelerate(plan)) return "accelerate";
  if (mixed.autocast && stored == Dtype::Float32) return "autocast";
  if (mixed.autocast) return "(own)";
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
  if (cluster.nodes == 1) return fmt::format("({})", text::counted(cluster.gpus_per_node, "GPU"));
  return fmt::format("({} nodes x {} GPUs)", cluster.nodes, cluster.gpus_per_node);
}

/// Nobody chose a stand-in GPU; its memory has its own field.
std::string gpu_text(const Gpu& gpu) {
  return is_stand_in(gpu) ? "(like " + card_of(gpu) + ")" : gpu.name;
}

std::string strategy_of(const Snapshot& snapshot) {
  const Plan& plan = snapshot.report.plan;
  if (!traits_of(plan).wraps_units) return "(" + planner::strategy_name(plan) + ")";
  const std::string name = planner::fsdp1_name(plan);
  return planner::has_mixed_reshard(plan) ? fmt::format("(mixed {})", name) : name;
}

std::string global_batch_of(const Snapshot& snapshot) {
  const std::string batch = shown_dimension("batch", snapshot);
  if (batch.empty()) return "";
  return fmt::format("{}", std::stoll(batch) * micro_batches_of_step(snapshot.report.plan));
}

constexpr std::string_view kMachines = "Machines";
constexpr std::string_view kWork = "Work";
constexpr std::string_view kPlan = "Plan";
constexpr std::string_view kRuntime = "Optimizer and runtime";

std::vector<ControlInfo> machine_controls() {
  const std::vector<std::int64_t> host_sizes = {64, 128, 256, 512, 1024, 2048};
  const std::vector<std::int64_t> drive_sizes = {512, 1024, 2048, 4096, 8192, 16384, 32768};
  const std::vector<std::int64_t> powers = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  const std::vector<std::int64_t> counts = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::int64_t> memories = {8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 141, 192};
  return {
      {PlanChoice::ClusterFile, "Cluster", kMachines, ControlKind::Open,
       [](const Snapshot& s) { return cluster_text(s.cluster); }},
      {PlanChoice::GpuName, "GPU", kMachines, ControlKind::Open,
       [](const Snapshot& s) { return gpu_text(s.cluster.gpu); }},
      {PlanChoice::Gpus, "GPUs per node", kMachines, ControlKind::Count,
       [](const Snapshot& s) { return std::to_string(s.cluster.gpus_per_node); }, counts},
      {PlanChoice::Nodes, "Nodes", kMachines, ControlKind::Count,
       [](const Snapshot& s) { return std::to_string(s.cluster.nodes); }, powers},
      {PlanChoice::Memory, "Memory of a GPU", kMachines, ControlKind::Size,
       [](const Snapshot& s) { return exact_size(s.cluster.gpu.memory.value); }, memories},
      {PlanChoice::ReserveMemory, "Other programs on it", kMachines, ControlKind::Text,
       [](const Snapshot& s) { return s.cluster.reserved_memory ? exact_size(s.cluster.reserved_memory->value) : ""; }},
      {PlanChoice::IntraLinkName, "Link within a node", kMachines, ControlKind::Choice,
       [](const Snapshot& s) { return std::string(name_of(kIntraLinkNames, s.cluster.intra_node.kind)); }},
      {PlanChoice::IntraBandwidth, "Link bandwidth", kMachines, ControlKind::Text,
       [](const Snapshot& s) { return spaced(exact_bandwidth(s.cluster.intra_node.bandwidth.value)); }},
      {PlanChoice::NetworkName, "Network", kMachines, ControlKind::Choice,
       [](const Snapshot& s) { return std::string(name_of(kNetworkNames, s.cluster.network.kind)); }},
      {PlanChoice::NicBandwidth, "Network bandwidth", kMachines, ControlKind::Text,
       [](const Snapshot& s) { return spaced(exact_bandwidth(s.cluster.network.nic_bandwidth.value)); }},
      {PlanChoice::HostMemory, "Host RAM per node", kMachines, ControlKind::Size,
       [](const Snapshot& s) { return s.cluster.host_memory ? exact_size(s.cluster.host_memory->value) : ""; },
       host_sizes},
      {PlanChoice::NvmeCapacity, "NVMe per node", kMachines, ControlKind::Size,
       [](const Snapshot& s) { return s.cluster.nvme_capacity ? exact_size(s.cluster.nvme_capacity->value) : ""; },
       drive_sizes},
      {PlanChoice::NvmeBandwidth, "NVMe bandwidth", kMachines, ControlKind::Text,
       [](const Snapshot& s) { return spaced(exact_bandwidth(nvme_bandwidth(s.cluster).value)); }},
  };
}

ControlInfo float8_control() {
  return {PlanChoice::Float8,
          "Float8 layers",
          kWork,
          ControlKind::Open,
          [](const Snapshot& s) { return s.report.plan.float8 ? to_text(*s.report.plan.float8) : "no"; },
          {},
          {"tensorwise", "tensorwise,all_gather", "rowwise", "rowwise_with_gw_hp"}};
}

std::string packed_attention_of(const Snapshot& s) {
  const std::optional<Packing>& packing = s.report.plan.packing;
  return packing ? std::string(name_of(kPackedAttentionTable, packing->attention)) : "";
}

std::string attention_of(const Snapshot& s) {
  return std::string(name_of(kAttentionBackendTable, s.report.plan.runtime.implementations.attention));
}

std::vector<ControlInfo> work_controls() {
  const std::vector<std::int64_t> batches = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  const std::vector<std::int64_t> accumulations = {1, 2, 4, 8, 16, 32, 64},
                                  global_batches = {8, 16, 32, 64, 128, 256, 512, 1024};
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 128; length <= 131072; length *= 2) lengths.push_back(length);
  const std::vector<std::string> ranks = {"8", "16", "32", "64"}, quantizations = {"nf4", "nf4,double", "fp4"};
  const std::vector<std::string> kernels = {"all", "rope,rms_norm,glu", "rms_norm,glu"};
  return {
      {PlanChoice::Recipe, "Recipe", kWork, ControlKind::Choice,
       [](const Snapshot& s) { return s.report.plan.recipe; }},
      {PlanChoice::Batch, "Micro-batch", kWork, ControlKind::Count,
       [](const Snapshot& s) { return shown_dimension("batch", s); }, batches},
      {PlanChoice::Sequence, "Sequence length", kWork, ControlKind::Count,
       [](const Snapshot& s) { return shown_dimension("seq", s); }, lengths},
      {PlanChoice::Packing, "Packed row", kWork, ControlKind::Count,
       [](const Snapshot& s) { return s.report.plan.packing ? shown_dimension("seq", s) : "none"; }, lengths},
      {PlanChoice::DocumentLength,
       "Document length",
       kWork,
       ControlKind::Open,
       [](const Snapshot& s) { return s.report.plan.packing ? s.report.plan.packing->lengths : ""; },
       {},
       {"256", "512", "1024", "2048"}},
      {PlanChoice::PackedAttentionName, "Packed attention", kWork, ControlKind::Choice, packed_attention_of},
      {PlanChoice::AttentionName, "Attention", kWork, ControlKind::Choice, attention_of},
      {PlanChoice::Accumulate, "Accumulation", kWork, ControlKind::Count,
       [](const Snapshot& s) { return std::to_string(s.report.plan.accumulation); }, accumulations},
      {PlanChoice::GlobalBatch, "Global batch", kWork, ControlKind::Count, global_batch_of, global_batches},
      {PlanChoice::Precision, "Precision", kWork, ControlKind::Choice,
       [](const Snapshot& s) { return precision_of(s.report.plan); }},
      {PlanChoice::ReduceDtype, "Reduce dtype", kWork, ControlKind::Choice,
       [](const Snapshot& s) {
         return s.report.plan.mixed_precision.reduce_dtype
                    ? std::string(name_of(*s.report.plan.mixed_precision.reduce_dtype))
                    : "(as computed)";
       }},
      {PlanChoice::Lora,
       "LoRA adapters",
       kWork,
       ControlKind::Open,
       [](const Snapshot& s) { return s.report.plan.lora ? to_text(*s.report.plan.lora) : "none"; },
       {},
       ranks},
      {PlanChoice::Quantize,
       "Quantized base",
       kWork,
       ControlKind::Open,
       [](const Snapshot& s) { return s.report.plan.quantization ? to_text(*s.report.plan.quantization) : "no"; },
       {},
       quantizations},
      {PlanChoice::Liger,
       "Liger's kernels",
       kWork,
       ControlKind::Open,
       [](const Snapshot& s) { return s.report.plan.liger ? to_text(*s.report.plan.liger) : "none"; },
       {},
       kernels},
      float8_control(),
      {PlanChoice::Also, "Other models", kWork, ControlKind::Text,
       [](const Snapshot& s) {
         std::string texts;
         for (const OtherModel& other : s.report.plan.also) texts += (texts.empty() ? "" : " ") + to_text(other);
         return texts.empty() ? std::string("none") : texts;
       }},
  };
}

std::vector<ControlInfo> plan_controls() {
  const std::vector<std::int64_t> prefetches = {0, 1, 2, 3, 4}, buffers = {1, 2, 3, 4};
  const std::vector<std::int64_t> powers = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  const std::vector<std::string> reshards = {"true", "false", "keep-last:4"};
  const std::vector<std::string> wraps = {"blocks", "2", "4", "sublayers", "projections", "root"};
  const std::vector<std::string> checkpoints = {"none",           "full",   "selective", "save-matmuls",
                                                "save-attention", "nested", "full:8"};
  return {
      {PlanChoice::Runtime, "Data parallelism", kPlan, ControlKind::Choice,
       [](const Snapshot& s) { return std::string(name_of(kRuntimeTable, s.report.plan.runtime.framework)); }},
      {PlanChoice::Strategy, "Strategy", kPlan, ControlKind::Choice, strategy_of},
      {PlanChoice::Shard, "Shard over", kPlan, ControlKind::Count,
       [](const Snapshot& s) { return std::to_string(s.report.plan.mesh.dp_shard()); }, powers},
      {PlanChoice::ExpertParallel,
       "Experts shared by",
       kPlan,
       ControlKind::Open,
       [](const Snapshot& s) { return std::to_string(s.report.plan.mesh.ep); },
       {},
       {"1", "8", "1,2,4,8"}},
      {PlanChoice::Reshard,
       "Reshard after forward",
       kPlan,
       ControlKind::Open,
       [](const Snapshot& s) { return reshard_of(s.report.plan); },
       {},
       reshards},
      {PlanChoice::Wrap,
       "FSDP units",
       kPlan,
       ControlKind::Open,
       [](const Snapshot& s) {
         return fmt::format("({})", text::counted(static_cast<std::int64_t>(s.report.plan.units.size()), "unit"));
       },
       {},
       wraps},
      {PlanChoice::WrapEnds, "Wrap embeddings/head", kPlan, ControlKind::Choice,
       [](const Snapshot& s) { return ends_of(s); }},
      {PlanChoice::Checkpoint,
       "Checkpointing",
       kPlan,
       ControlKind::Open,
       [](const Snapshot& s) { return checkpoint_of(s.report.plan, s.model.get()); },
       {},
       checkpoints},
      {PlanChoice::CheckpointOffload, "Checkpoints on host", kPlan, ControlKind::Choice,
       [](const Snapshot& s) -> std::string { return s.report.plan.checkpointing.offload_inputs ? "yes" : "no"; }},
      {PlanChoice::Offload, "Offload", kPlan, ControlKind::Choice,
       [](const Snapshot& s) -> std::string {
         return s.report.plan.zero.nvme.optimizer ? "nvme" : s.report.plan.cpu_offload ? "yes" : "no";
       }},
      {PlanChoice::GradientSync, "Reduce gradients", kPlan, ControlKind::Choice,
       [](const Snapshot& s) -> std::string { return s.report.plan.sync_every_micro_batch ? "every" : "last"; }},
      {PlanChoice::Prefetch, "Forward prefetch", kPlan, ControlKind::Count,
       [](const Snapshot& s) { return std::to_string(s.report.plan.forward_prefetch); }, prefetches},
      {PlanChoice::BackwardPrefetch, "Backward prefetch", kPlan, ControlKind::Count,
       [](const Snapshot& s) { return std::to_string(s.report.plan.backward_prefetch); }, prefetches},
      {PlanChoice::ReduceScatterBuffers, "Reduce buffers", kPlan, ControlKind::Count,
       [](const Snapshot& s) { return std::to_string(s.report.plan.reduce_scatter_buffers); }, buffers},
      {PlanChoice::SeparateReduceScatter, "Separate reductions", kPlan, ControlKind::Choice,
       [](const Snapshot& s) -> std::string { return s.report.plan.separate_reduce_scatter_group ? "yes" : "no"; }},
      {PlanChoice::Ddp, "DDP's defaults", kPlan, ControlKind::Choice,
       [](const Snapshot& s) -> std::string {
         const DdpOptions& ddp = s.report.plan.ddp;
         return ddp.find_unused_parameters ? "find-unused" : ddp == DdpOptions{} ? "defaults" : "searched";
       }},
      {PlanChoice::CudaGraphs, "CUDA graphs", kPlan, ControlKind::Choice,
       [](const Snapshot& s) -> std::string { return s.report.plan.cuda_graphs ? "yes" : "no"; }},
  };
}

std::vector<ControlInfo> runtime_controls() {
  const std::vector<std::string> norms = {"none", "1"};
  const std::vector<std::string> settings = {"expandable_segments:True"};
  return {
      {PlanChoice::Torch, "PyTorch", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) { return std::string(torch_version_of(s.report.plan.runtime).name); }},
      {PlanChoice::OptimizerName, "Optimizer", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) { return std::string(name_of(kOptimizerKindTable, s.report.plan.optimizer.kind)); }},
      {PlanChoice::OptimizerImpl, "Implementation", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) {
         return std::string(name_of(kOptimizerImplementationTable, s.report.plan.optimizer.implementation));
       }},
      {PlanChoice::OptimizerStatesName, "Optimizer states", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) { return std::string(name_of(kOptimizerStatesTable, s.report.plan.optimizer.states)); }},
      {PlanChoice::Muon, "Muon for matrices", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) -> std::string { return s.report.plan.optimizer.muon ? "yes" : "no"; }},
      {PlanChoice::Clip,
       "Gradient clipping",
       kRuntime,
       ControlKind::Open,
       [](const Snapshot& s) {
         return s.report.plan.optimizer.clip_grad_norm ? fmt::format("{}", *s.report.plan.optimizer.clip_grad_norm)
                                                       : "none";
       },
       {},
       norms},
      {PlanChoice::Initialization, "Initialized on", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) { return std::string(name_of(kInitializationTable, s.report.plan.initialization)); }},
      {PlanChoice::Flavor, "Model code", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) { return s.report.plan.runtime.flavor; }},
      {PlanChoice::LossName, "Loss", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) { return to_text(s.report.plan.runtime.implementations.loss); }},
      {PlanChoice::PaddingMask, "Mask of padding", kRuntime, ControlKind::Choice,
       [](const Snapshot& s) -> std::string {
         return s.report.plan.runtime.implementations.padding_mask ? "yes" : "no";
       }},
      {PlanChoice::AllocConf,
       "Allocator",
       kRuntime,
       ControlKind::Open,
       [](const Snapshot& s) { return s.report.plan.runtime.allocator_settings; },
       {},
       settings},
  };
}

std::vector<ControlInfo> make_infos() {
  std::vector<ControlInfo> infos;
  for (const auto controls : {machine_controls, work_controls, plan_controls, runtime_controls}) {
    for (ControlInfo& info : controls()) {
      if (info.kind == ControlKind::Choice && info.choices.empty()) info.choices = choices_of(info.choice);
      infos.push_back(std::move(info));
    }
  }
  return infos;
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
  for (const ControlInfo& info : control_infos()) {
    if (info.choice == choice) return info.shown(snapshot);
  }
  return "";
}

std::string shown_dimension(const std::string& name, const Snapshot& snapshot) {
  const Dimension* found = find_dimension(snapshot.report.plan.dimensions, name);
  return found == nullptr ? "" : fmt::format("{}", found->value);
}

}  // namespace fsdp::gui
