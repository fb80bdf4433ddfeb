#include "planner/plan_choices.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fsdp::planner {

namespace {

constexpr bool follow_the_enum() {
  for (std::size_t i = 0; i < kNumPlanChoices; ++i) {
    if (static_cast<std::size_t>(kPlanChoiceInfos[i].choice) != i) return false;
  }
  return true;
}
static_assert(follow_the_enum(), "info_of takes the enumerator as the index");

/// Calls `use` with the member that holds a choice, as a pointer to it.
template <class Use>
void with_member(PlanChoice choice, Use use) {
  switch (choice) {
    case PlanChoice::Gpus:
      return use(&PlanChoices::gpus);
    case PlanChoice::Nodes:
      return use(&PlanChoices::nodes);
    case PlanChoice::GpuName:
      return use(&PlanChoices::gpu_name);
    case PlanChoice::Memory:
      return use(&PlanChoices::memory);
    case PlanChoice::ClusterFile:
      return use(&PlanChoices::cluster_file);
    case PlanChoice::IntraLinkName:
      return use(&PlanChoices::intra_link);
    case PlanChoice::IntraBandwidth:
      return use(&PlanChoices::intra_bandwidth);
    case PlanChoice::NetworkName:
      return use(&PlanChoices::network);
    case PlanChoice::NicBandwidth:
      return use(&PlanChoices::nic_bandwidth);
    case PlanChoice::GpusPerNic:
      return use(&PlanChoices::gpus_per_nic);
    case PlanChoice::HostMemory:
      return use(&PlanChoices::host_memory);
    case PlanChoice::Recipe:
      return use(&PlanChoices::recipe);
    case PlanChoice::Batch:
      return use(&PlanChoices::batch);
    case PlanChoice::Sequence:
      return use(&PlanChoices::sequence);
    case PlanChoice::GlobalBatch:
      return use(&PlanChoices::global_batch);
    case PlanChoice::Accumulate:
      return use(&PlanChoices::accumulation);
    case PlanChoice::SetDimension:
      return use(&PlanChoices::dimensions);
    case PlanChoice::Trainable:
      return use(&PlanChoices::trainable);
    case PlanChoice::Freeze:
      return use(&PlanChoices::frozen);
    case PlanChoice::Precision:
      return use(&PlanChoices::precision);
    case PlanChoice::ReduceDtype:
      return use(&PlanChoices::reduce_dtype);
    case PlanChoice::OptimizerName:
      return use(&PlanChoices::optimizer);
    case PlanChoice::OptimizerImpl:
      return use(&PlanChoices::optimizer_implementation);
    case PlanChoice::OptimizerStatesName:
      return use(&PlanChoices::optimizer_states);
    case PlanChoice::Clip:
      return use(&PlanChoices::clip);
    case PlanChoice::Flavor:
      return use(&PlanChoices::flavor);
    case PlanChoice::CrossEntropy:
      return use(&PlanChoices::cross_entropy);
    case PlanChoice::AllocConf:
      return use(&PlanChoices::allocator_settings);
    case PlanChoice::Runtime:
      return use(&PlanChoices::runtime);
    case PlanChoice::DeepSpeedFile:
      return use(&PlanChoices::deepspeed_file);
    case PlanChoice::Strategy:
      return use(&PlanChoices::strategy);
    case PlanChoice::Shard:
      return use(&PlanChoices::shard);
    case PlanChoice::Replicate:
      return use(&PlanChoices::replicate);
    case PlanChoice::Reshard:
      return use(&PlanChoices::reshard);
    case PlanChoice::Wrap:
      return use(&PlanChoices::wrap);
    case PlanChoice::WrapEnds:
      return use(&PlanChoices::wrap_ends);
    case PlanChoice::Checkpoint:
      return use(&PlanChoices::checkpoint);
    case PlanChoice::Offload:
      return use(&PlanChoices::cpu_offload);
    case PlanChoice::GradientSync:
      return use(&PlanChoices::gradient_sync);
    case PlanChoice::Prefetch:
      return use(&PlanChoices::forward_prefetch);
    case PlanChoice::BackwardPrefetch:
      return use(&PlanChoices::backward_prefetch);
  }
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

bool is_about_machines(PlanChoice choice) {
  return choice <= PlanChoice::HostMemory;
}

bool is_about_plan(PlanChoice choice) {
  return choice >= PlanChoice::Runtime || choice == PlanChoice::GlobalBatch;
}

}  // namespace fsdp::planner
