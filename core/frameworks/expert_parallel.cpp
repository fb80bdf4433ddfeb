// How transformers lays out experts that several ranks share, beside FSDP2.
//
// N ranks of a shard group are E neighbors, each with 1/E of the experts of a layer, times N/E ranks with the same:
//
//   N = 8, E = 4    ranks      0    1    2    3    4    5    6    7
//                   experts    a    b    c    d    a    b    c    d
//                   tokens are exchanged in {0 1 2 3} and {4 5 6 7}; the unit of a layer's experts is gathered and
//                   reduced in {0 4}, {1 5}, {2 6}, {3 7}; all other units are in {0 .. 7}
//
// The module of a layer's experts is a unit of its own, inside that of its block, and resharded after forward. Each
// rank's experts see the tokens of its E neighbors, so a gradient that is summed over N/E ranks covers all N batches:
// it is summed, and divided by N afterwards.
//
// Sources: transformers 5.24.0, distributed/utils.py (TransformersDeviceMesh), distributed/fsdp.py
// (apply_fully_sharded_data_parallelism), distributed/expert_parallel.py (MoEParamShard).

#include "core/frameworks/expert_parallel.h"

#include <fmt/format.h>

#include "core/model/experts.h"

namespace fsdp {

Errors note_experts(Layout& layout, const ModelIndex& index) {
  Errors errors;
  for (const int module : expert_modules(*index.model)) {
    const std::string& name = index.model->modules[static_cast<std::size_t>(module)].name;
    bool is_found = false;
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
      ShardedUnit& unit = layout.units[u];
      if (unit.modules != std::vector<int>{module}) continue;
      unit.of_experts = is_found = true;
      if (unit.reshard.kind == ReshardAfterForward::Kind::Always) continue;
      errors.push_back({fmt::format("units/{}", u), fmt::format("\"{}\" is not resharded after forward.", name),
                        "transformers reshards experts that ranks share: write true."});
    }
    if (is_found) continue;
    errors.push_back({"units", fmt::format("The experts \"{}\" are no unit of their own.", name),
                      "Under expert parallelism each layer's experts are: add the unit before that of its block."});
  }
  return errors;
}

}  // namespace fsdp
