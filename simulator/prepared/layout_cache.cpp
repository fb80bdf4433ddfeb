#include "simulator/prepared/layout_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/frameworks/layout.h"

namespace fsdp::simulator {

namespace {

/// The maximum sum of all stored layouts: some 80 MiB.
constexpr std::size_t kMostParameters = std::size_t{1} << 21;

}  // namespace

bool LayoutCache::is_of(const Key& key, const Plan& plan) {
  return key.framework == plan.runtime.framework && key.quirks == plan.runtime.quirks && key.ddp == plan.ddp &&
         key.fsdp1 == plan.fsdp1 && key.zero == plan.zero &&
         (key.framework == Framework::Fsdp2 || key.replicate == plan.mesh.dp_replicate()) &&
         key.shard == plan.mesh.dp_shard() && key.ep == plan.mesh.ep && key.parameter_dtype == plan.parameter_dtype &&
         key.mixed_precision == plan.mixed_precision &&
         std::equal(key.modules.begin(), key.modules.end(), plan.units.begin(), plan.units.end(),
                    [](const std::vector<std::string>& modules, const Unit& unit) { return modules == unit.modules; });
}

std::list<LayoutCache::Entry>::iterator LayoutCache::find(const Plan& plan) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return is_of(entry.key, plan); });
}

Result<Layout> LayoutCache::take(const Plan& plan, std::int64_t rank) {
  const auto found = find(plan);
  if (found == entries_.end() || !found->is_here) {
    num_laid_out_ += static_cast<std::int64_t>(index_.model->parameters.size());
    return make_layout(index_, plan, rank);
  }
  if (Errors errors = reshard_as(found->layout, index_, plan); !errors.empty())
    return tl::unexpected(std::move(errors));
  if (found->layout.rank != rank) see_from(found->layout, rank);
  entries_.splice(entries_.begin(), entries_, found);
  found->is_here = false;
  return std::move(found->layout);
}

std::list<LayoutCache::Entry>::iterator LayoutCache::find_or_add(const Plan& plan) {
  if (const auto found = find(plan); found != entries_.end()) return found;
  Key key{.framework = plan.runtime.framework,
          .quirks = plan.runtime.quirks,
          .ddp = plan.ddp,
          .fsdp1 = plan.fsdp1,
          .zero = plan.zero,
          .replicate = plan.mesh.dp_replicate(),
          .shard = plan.mesh.dp_shard(),
          .ep = plan.mesh.ep,
          .parameter_dtype = plan.parameter_dtype,
          .mixed_precision = plan.mixed_precision,
          .modules = {}};
  for (const Unit& unit : plan.units) key.modules.push_back(unit.modules);
  return entries_.insert(entries_.begin(), Entry{std::move(key), {}});
}

void LayoutCache::give_back(const Plan& plan, Layout layout) {
  const auto of = find_or_add(plan);
  of->layout = std::move(layout);
  of->is_here = true;
  drop_old_ones();
}

const Layout& LayoutCache::look(const Plan& plan) {
  auto layout = take(plan, 0);
  assert(layout.has_value());
  give_back(plan, *std::move(layout));
  return entries_.front().layout;
}

const LayoutSums& LayoutCache::sums(const Plan& plan, const Layout& layout) {
  std::optional<LayoutSums>& known = find_or_add(plan)->sums;
  if (!known || known->rank != layout.rank) known = sums_of(layout, plan.mixed_precision);
  return *known;
}

void LayoutCache::drop_old_ones() {
  const std::size_t of_model = std::max<std::size_t>(1, index_.model->parameters.size());
  const std::size_t most = std::max<std::size_t>(1, kMostParameters / of_model);
  while (entries_.size() > most) entries_.pop_back();
}

}  // namespace fsdp::simulator
