#include "planner/search/host_limit.h"

#include <cassert>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "core/frameworks/layout.h"
#include "core/model/model_index.h"
#include "core/plan/sharding.h"
#include "simulator/memory/host_memory.h"

namespace fsdp::planner {

namespace {

/// The needs of families, computed once for each mesh and way of wrapping.
class HostNeeds {
 public:
  HostNeeds(const Plan& base, const Families& families, const Model& model, const Cluster& cluster)
      : base_(base), families_(families), cluster_(cluster), index_(index_of(model)) {}

  /// Includes the margin. 0 for none.
  Bytes of(const Family& family) {
    if (!family.cpu_offload && base_.initialization != Initialization::Cpu) return Bytes(0);
    // The arguments decide which parameters ZeRO-3 keeps on the host.
    const Key key{family.mesh.dp_shard(),
                  family.mesh.ep,
                  family.wrapping,
                  family.cpu_offload,
                  family.accumulation > 1,
                  family.sync_every_micro_batch,
                  families_.arguments[family.arguments].offload_param,
                  families_.arguments[family.arguments].drive};
    if (const auto known = needs_.find(key); known != needs_.end()) return known->second;
    Plan plan = base_;
    plan.mesh = family.mesh;
    set_arguments(plan, families_.arguments[family.arguments]);
    set_offload(plan, family.cpu_offload);
    plan.accumulation = family.accumulation;
    plan.sync_every_micro_batch = family.sync_every_micro_batch;
    plan.units = units_of(families_.wrappings[family.wrapping].wrapping, family, 0);
    const auto layout = make_layout(index_, plan);
    assert(layout.has_value());
    const auto host = simulator::host_memory(cluster_, plan, *layout);
    return needs_.emplace(key, host ? host->needed + host->margin : Bytes(0)).first->second;
  }

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, int, bool, bool, bool, bool, bool>;

  const Plan& base_;
  const Families& families_;
  const Cluster& cluster_;
  ModelIndex index_;
  std::map<Key, Bytes> needs_;
};

}  // namespace

std::int64_t HostLimit::num_over_budget() const {
  std::int64_t plans = 0;
  for (const OverBudget& each : over_budget) plans += each.families.size();
  return plans;
}

HostLimit split_by_host(const Plan& base, Families families, const PredictorOf& predictor_of) {
  HostLimit limit;
  const simulator::Predictor& predictor = predictor_of(families.families.front().micro_batch);
  if (!predictor.cluster().host_memory) {
    limit.within = std::move(families);
    return limit;
  }
  HostNeeds needs(base, families, predictor.model(), predictor.cluster());
  const Bytes budget = predictor.cluster().host_memory->value;
  Families none = families;
  none.families.clear();
  limit.within = none;
  std::map<Bytes, Families> over_budget;
  for (const Family& family : families.families) {
    const Bytes needed = needs.of(family);
    Families& part = needed <= budget ? limit.within : over_budget.try_emplace(needed, none).first->second;
    part.families.push_back(family);
  }
  for (auto& [needed, part] : over_budget) limit.over_budget.push_back({needed, std::move(part)});
  return limit;
}

}  // namespace fsdp::planner
