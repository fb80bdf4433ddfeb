#include "planner/plan_choices.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "planner/framework_arguments.h"

namespace fsdp::planner {

namespace {

constexpr bool follow_the_enum() {
  for (std::size_t i = 0; i < kNumPlanChoices; ++i) {
    if (static_cast<std::size_t>(kPlanChoiceInfos[i].choice) != i) return false;
  }
  return true;
}
static_assert(follow_the_enum(), "info_of takes the enumerator as the index");

/// Each choice with the member that holds it.
constexpr std::tuple kMembers{
    std::pair{PlanChoice::Gpus, &PlanChoices::gpus},
    std::pair{PlanChoice::Nodes, &PlanChoices::nodes},
    std::pair{PlanChoice::GpuName, &PlanChoices::gpu_name},
    std::pair{PlanChoice::Memory, &PlanChoices::memory},
    std::pair{PlanChoice::ClusterFile, &PlanChoices::cluster_file},
    std::pair{PlanChoice::IntraLinkName, &PlanChoices::intra_link},
    std::pair{PlanChoice::IntraBandwidth, &PlanChoices::intra_bandwidth},
    std::pair{PlanChoice::BusBandwidth, &PlanChoices::bus_bandwidth},
    std::pair{PlanChoice::NetworkName, &PlanChoices::network},
    std::pair{PlanChoice::NicBandwidth, &PlanChoices::nic_bandwidth},
    std::pair{PlanChoice::GpusPerNic, &PlanChoices::gpus_per_nic},
    std::pair{PlanChoice::Sharp, &PlanChoices::sharp},
    std::pair{PlanChoice::NcclVersion, &PlanChoices::nccl_version},
    std::pair{PlanChoice::NcclAlgorithms, &PlanChoices::nccl_algorithms},
    std::pair{PlanChoice::NcclProtocols, &PlanChoices::nccl_protocols},
    std::pair{PlanChoice::NodeSpread, &PlanChoices::node_spread},
    std::pair{PlanChoice::HostMemory, &PlanChoices::host_memory},
    std::pair{PlanChoice::NvmeBandwidth, &PlanChoices::nvme_bandwidth},
    std::pair{PlanChoice::NvmeCapacity, &PlanChoices::nvme_capacity},
    std::pair{PlanChoice::Recipe, &PlanChoices::recipe},
    std::pair{PlanChoice::Batch, &PlanChoices::batch},
    std::pair{PlanChoice::Sequence, &PlanChoices::sequence},
    std::pair{PlanChoice::GlobalBatch, &PlanChoices::global_batch},
    std::pair{PlanChoice::Accumulate, &PlanChoices::accumulation},
    std::pair{PlanChoice::SetDimension, &PlanChoices::dimensions},
    std::pair{PlanChoice::Trainable, &PlanChoices::trainable},
    std::pair{PlanChoice::Freeze, &PlanChoices::frozen},
    std::pair{PlanChoice::Precision, &PlanChoices::precision},
    std::pair{PlanChoice::ReduceDtype, &PlanChoices::reduce_dtype},
    std::pair{PlanChoice::OptimizerName, &PlanChoices::optimizer},
    std::pair{PlanChoice::OptimizerImpl, &PlanChoices::optimizer_implementation},
    std::pair{PlanChoice::OptimizerStatesName, &PlanChoices::optimizer_states},
    std::pair{PlanChoice::Clip, &PlanChoices::clip},
    std::pair{PlanChoice::Initialization, &PlanChoices::initialization},
    std::pair{PlanChoice::Flavor, &PlanChoices::flavor},
    std::pair{PlanChoice::CrossEntropy, &PlanChoices::cross_entropy},
    std::pair{PlanChoice::AllocConf, &PlanChoices::allocator_settings},
    std::pair{PlanChoice::Torch, &PlanChoices::torch},
    std::pair{PlanChoice::Runtime, &PlanChoices::runtime},
    std::pair{PlanChoice::DeepSpeedFile, &PlanChoices::deepspeed_file},
    std::pair{PlanChoice::Strategy, &PlanChoices::strategy},
    std::pair{PlanChoice::Shard, &PlanChoices::shard},
    std::pair{PlanChoice::Replicate, &PlanChoices::replicate},
    std::pair{PlanChoice::Reshard, &PlanChoices::reshard},
    std::pair{PlanChoice::Wrap, &PlanChoices::wrap},
    std::pair{PlanChoice::WrapEnds, &PlanChoices::wrap_ends},
    std::pair{PlanChoice::Checkpoint, &PlanChoices::checkpoint},
    std::pair{PlanChoice::Offload, &PlanChoices::cpu_offload},
    std::pair{PlanChoice::GradientSync, &PlanChoices::gradient_sync},
    std::pair{PlanChoice::Prefetch, &PlanChoices::forward_prefetch},
    std::pair{PlanChoice::BackwardPrefetch, &PlanChoices::backward_prefetch},
    std::pair{PlanChoice::ReduceScatterBuffers, &PlanChoices::reduce_scatter_buffers},
    std::pair{PlanChoice::SeparateReduceScatter, &PlanChoices::separate_reduce_scatter},
};
static_assert(std::tuple_size_v<decltype(kMembers)> == kNumPlanChoices, "each choice has a member");

/// Calls `use` with the member that holds a choice, as a pointer to it.
template <class Use>
void with_member(PlanChoice choice, Use use) {
  const auto use_if_meant = [&](const auto& each) {
    if (each.first == choice) use(each.second);
  };
  std::apply([&](const auto&... all) { (use_if_meant(all), ...); }, kMembers);
}

template <class T>
bool is_decided(const std::optional<T>& value) {
  return value.has_value();
}
template <class T>
bool is_decided(const std::vector<T>& values) {
  return !values.empty();
}

template <class T>
void change_to(std::optional<T>& value, const std::optional<T>& change) {
  if (change) value = change;
}
void change_to(std::vector<std::string>& patterns, const std::vector<std::string>& more) {
  patterns.insert(patterns.end(), more.begin(), more.end());
}
void change_to(std::vector<Dimension>& dimensions, const std::vector<Dimension>& changed) {
  for (const Dimension& each : changed) {
    std::erase_if(dimensions, [&](const Dimension& old) { return old.name == each.name; });
    dimensions.push_back(each);
  }
}

}  // namespace

std::span<const PlanChoice> plan_choices() {
  static constexpr auto kAll = [] {
    std::array<PlanChoice, kNumPlanChoices> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<PlanChoice>(i);
    return all;
  }();
  return kAll;
}

bool has(const PlanChoices& choices, PlanChoice choice) {
  bool is_there = false;
  with_member(choice, [&](auto member) { is_there = is_decided(choices.*member); });
  return is_there;
}

void clear(PlanChoices& choices, PlanChoice choice) {
  with_member(choice, [&](auto member) { choices.*member = {}; });
}

PlanChoices only(PlanChoices choices, bool (*is_wanted)(PlanChoice)) {
  for (const PlanChoice choice : plan_choices()) {
    if (!is_wanted(choice)) clear(choices, choice);
  }
  return choices;
}

PlanChoices with_change(PlanChoices choices, const PlanChoices& change) {
  for (const PlanChoice choice : plan_choices()) {
    with_member(choice, [&](auto member) { change_to(choices.*member, change.*member); });
  }
  return choices;
}

PlanChoices size_choice(const std::string& name, double value) {
  PlanChoices choices;
  if (name == "batch") {
    choices.batch = static_cast<std::int64_t>(value);
  } else if (name == "seq") {
    choices.sequence = static_cast<std::int64_t>(value);
  } else {
    choices.dimensions = {{name, value}};
  }
  return choices;
}

std::optional<PlanChoice> choice_of_place(std::string_view place) {
  for (const PlanChoiceInfo& info : kPlanChoiceInfos) {
    if (info.place == place || (!info.former.empty() && info.former == place)) return info.choice;
  }
  return std::nullopt;
}

std::optional<Error> offload_misfit(const OffloadChoice& choice, std::optional<Framework> framework) {
  if (!choice.to_drive || framework == Framework::Zero3) return std::nullopt;
  return Error{std::string(place_of(PlanChoice::Offload)), "ZeRO-3 alone keeps something on an NVMe drive.",
               "Write yes, or plan for --runtime zero3."};
}

void apply_offload(Plan& plan, const OffloadChoice& choice) {
  set_offload(plan, choice.is_on);
  if (!choice.to_drive) {
    plan.zero.nvme = {};
    return;
  }
  // Buffers are as large as sub-groups, which by default are as large as most models.
  if (!plan.zero.nvme.optimizer) plan.zero.sub_group_size = std::min(plan.zero.sub_group_size, kDriveSubGroup);
  plan.zero.nvme.optimizer = true;
}

bool is_about_machines(PlanChoice choice) {
  return choice <= PlanChoice::NvmeCapacity;
}

bool is_about_plan(PlanChoice choice) {
  return choice >= PlanChoice::Runtime || choice == PlanChoice::GlobalBatch;
}

}  // namespace fsdp::planner
