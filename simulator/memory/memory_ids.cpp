#include "simulator/memory/memory_ids.h"

#include <algorithm>

namespace fsdp::simulator {

MemoryIds number_tensors(const Model& model, const Plan& plan, const Layout& layout,
                         const std::vector<int>& num_storages, int first) {
  MemoryIds ids;
  ids.first = first;
  ids.num_parameters = static_cast<int>(model.parameters.size());
  ids.num_units = static_cast<int>(layout.units.size());
  ids.num_buffers = static_cast<int>(model.buffers.size());
  ids.num_inputs = static_cast<int>(model.inputs.size());
  ids.sums_base = ids.inputs_base() + 3 * ids.num_inputs;
  ids.buckets_base = ids.sums_base + kNumGradSums * static_cast<int>(model.values.size());
  ids.num_buckets = layout.num_buckets();
  ids.muon_base = ids.buckets_base + ids.num_buckets;
  int next = ids.muon_base + (plan.optimizer.muon ? 2 * kNumMuonTensors : 0);
  ids.call_base.reserve(num_storages.size() + 1);
  for (const int count : num_storages) {
    ids.call_base.push_back(next);
    next += count;
  }
  ids.call_base.push_back(next);
  ids.total = next;
  return ids;
}

CallTensor find_call(const MemoryIds& ids, int id) {
  if (id >= ids.call_base.back()) return {};
  const auto after = std::upper_bound(ids.call_base.begin(), ids.call_base.end(), id);
  const int call = static_cast<int>(after - ids.call_base.begin()) - 1;
  return call < 0 ? CallTensor{} : CallTensor{call, id - ids.call_base[call]};
}

}  // namespace fsdp::simulator
