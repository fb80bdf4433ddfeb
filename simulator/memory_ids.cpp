#include "simulator/memory_ids.h"

namespace fsdp::simulator {

MemoryIds number_tensors(const Model& model, const Layout& layout, const std::vector<int>& num_storages) {
  MemoryIds ids;
  ids.num_parameters = static_cast<int>(model.parameters.size());
  ids.num_units = static_cast<int>(layout.units.size());
  ids.num_buffers = static_cast<int>(model.buffers.size());
  ids.num_inputs = static_cast<int>(model.inputs.size());
  ids.sums_base = ids.inputs_base() + 3 * ids.num_inputs;
  int next = ids.sums_base + kNumGradSums * static_cast<int>(model.values.size());
  ids.call_base.reserve(num_storages.size() + 1);
  for (const int count : num_storages) {
    ids.call_base.push_back(next);
    next += count;
  }
  ids.call_base.push_back(next);
  ids.total = next;
  return ids;
}

}  // namespace fsdp::simulator
