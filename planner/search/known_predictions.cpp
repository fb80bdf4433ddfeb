#include "planner/search/known_predictions.h"

#include <algorithm>

namespace fsdp::planner {

namespace {

/// The index of a value among the known ones. Adds a new value.
template <class T>
int place_among(std::vector<T>& known, const T& value) {
  const auto found = std::find(known.begin(), known.end(), value);
  const auto place = static_cast<int>(found - known.begin());
  if (found == known.end()) known.push_back(value);
  return place;
}

}  // namespace

int KnownPredictions::number_of(const Plan& base, const Families& families, const Family& family) {
  const ReshardAfterForward root = family.root.value_or(ReshardAfterForward{});
  const Ints ints{place_among(bases_, base),
                  place_among(wrappings_, families.wrappings[static_cast<std::size_t>(family.wrapping)].wrapping),
                  place_among(arguments_, families.arguments[static_cast<std::size_t>(family.arguments)]),
                  family.mesh.dp_replicate(),
                  family.mesh.dp_shard(),
                  family.mesh.ep,
                  family.reshard,
                  family.reshard_world_size,
                  static_cast<int>(root.kind),
                  root.world_size,
                  family.keeps_head,
                  family.micro_batch,
                  family.accumulation,
                  family.forward_prefetch,
                  family.backward_prefetch,
                  family.cpu_offload,
                  family.sync_every_micro_batch};
  return families_.try_emplace(ints, static_cast<int>(families_.size())).first->second;
}

KnownPredictions::Key KnownPredictions::key_of(int family, const Families& families, const PlanPoint& plan_point) {
  const Family& of = families.families[static_cast<std::size_t>(plan_point.family)];
  return {family, plan_point.kept, families.way_of(plan_point), families.checkpointed(of, plan_point.checkpointed)};
}

const simulator::Outcome* KnownPredictions::find(simulator::Detail detail, const Key& key) const {
  const auto& known = outcomes_[static_cast<std::size_t>(detail)];
  const auto found = known.find(key);
  return found == known.end() ? nullptr : &found->second;
}

void KnownPredictions::keep(simulator::Detail detail, const Key& key, const simulator::Outcome& outcome) {
  outcomes_[static_cast<std::size_t>(detail)].insert_or_assign(key, outcome);
}

}  // namespace fsdp::planner
