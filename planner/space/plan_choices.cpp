#include "planner/space/plan_choices.h"

#include <algorithm>
#include <array>
#include <variant>

#include "core/plan/framework_traits.h"
#include "core/plan/torch_version.h"
#include "planner/space/choice_table.h"
#include "planner/space/framework_arguments.h"
#include "simulator/allocator/allocator_settings.h"

namespace fsdp::planner {

namespace {

/// Calls `use` with a pointer to the member of a choice.
template <class Use>
void with_member(PlanChoice choice, Use use) {
  std::visit(use, row_of(choice).member);
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
void change_to(std::vector<OtherModel>& also, const std::vector<OtherModel>& changed) {
  if (!changed.empty()) also = changed;
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

std::string_view place_of(PlanChoice choice) {
  return place_of(row_of(choice));
}

std::optional<PlanChoice> choice_of_place(std::string_view place) {
  for (const ChoiceRow& row : kChoiceRows) {
    if (place_of(row) == place || (!row.rules.former.empty() && row.rules.former == place)) return row.choice;
  }
  return std::nullopt;
}

std::optional<Error> offload_misfit(const OffloadChoice& choice, std::optional<Framework> framework) {
  if (!choice.to_drive || (framework && traits_of(*framework).zero_stage == 3)) return std::nullopt;
  return Error{std::string(place_of(PlanChoice::Offload)), "Only ZeRO-3 keeps data on an NVMe drive.",
               "Write yes, or plan for --runtime zero3."};
}

void apply_offload(Plan& plan, const OffloadChoice& choice) {
  set_offload(plan, choice.is_on);
  if (!choice.to_drive) {
    plan.zero.nvme = {};
    return;
  }
  // Buffers are as large as sub-groups, whose default is as large as most models.
  if (!plan.zero.nvme.optimizer) plan.zero.sub_group_size = std::min(plan.zero.sub_group_size, kDriveSubGroup);
  plan.zero.nvme.optimizer = true;
}

Result<void> check_flavor(const std::string& text, std::string_view where) {
  const Result<Runtime> runtime = runtime_of_flavor(text);
  if (runtime) return {};
  return failure(std::string(where), runtime.error()[0].what, runtime.error()[0].hint);
}

Result<void> check_torch(const std::string& text, std::string_view where) {
  const Result<TorchVersion> version = find_torch_version(text);
  if (version) return {};
  return failure(std::string(where), version.error()[0].what, version.error()[0].hint);
}

Result<void> check_allocator_settings(const std::string& text, std::string_view /*where*/) {
  const auto settings = simulator::parse_allocator_settings(text);
  if (settings) return {};
  return tl::unexpected(settings.error());
}

bool is_about_machines(PlanChoice choice) {
  return choice <= PlanChoice::NvmeCapacity;
}

bool is_about_plan(PlanChoice choice) {
  return choice >= PlanChoice::Runtime || choice == PlanChoice::GlobalBatch;
}

}  // namespace fsdp::planner
