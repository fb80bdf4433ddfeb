#include "core/frameworks/zero/hooked_modules.h"

#include <algorithm>

#include "core/plan/parameter_part.h"
#include "core/plan/unit_windows.h"

namespace fsdp {

namespace {

void add_hooked(ShardedUnit& unit, int parameter, const Model& model, const Mesh& mesh) {
  const ParameterPart part = part_of(model.parameters[parameter].shape, CutBy::Elements, mesh.dp_shard());
  ShardedParameter p{.parameter = parameter, .elements = part.elements};
  p.shard_elements = p.local_elements = part.chunk;
  p.receives_gradient = model.parameters[parameter].receives_gradient;
  unit.parameters.push_back(p);
}

// Adds a parameter that an op of a module reads to the innermost module that runs, unless a module around it owns it.
void gather_for(int module, int parameter, const std::vector<int>& place, const Model& model, const Mesh& mesh,
                std::vector<ShardedUnit>& hooked) {
  int runner = -1;  // The innermost module that runs.
  for (int above = module; above >= 0; above = model.modules[above].parent) {
    if (place[above] < 0) continue;
    if (runner < 0) runner = place[above];
    const std::vector<ShardedParameter>& own = hooked[place[above]].parameters;
    if (std::any_of(own.begin(), own.end(), [&](const auto& p) { return p.parameter == parameter; })) return;
  }
  if (runner < 0) return;
  add_hooked(hooked[runner], parameter, model, mesh);
  hooked[runner].parameters.back().is_external = true;
}

}  // namespace

std::vector<ShardedUnit> hooked_modules(const ModelIndex& index, const Mesh& mesh) {
  const Model& model = *index.model;
  std::vector<ShardedUnit> hooked;
  std::vector<int> place(model.modules.size(), -1);
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    if (index.runs[m].empty() || (m > 0 && !model.modules[m].called)) continue;
    place[m] = static_cast<int>(hooked.size());
    ShardedUnit& unit = hooked.emplace_back();
    unit.name = model.modules[m].name;
    unit.modules = {static_cast<int>(m)};
    unit.is_root = m == 0;
    unit.windows = windows_of(unit, index);
    for (const int p : model.modules[m].parameters) add_hooked(unit, p, model, mesh);
  }
  for (const Call& call : model.calls) {
    const Block& block = model.blocks[call.block];
    for (const Op& op : block.ops) {
      if (op.parameters.empty() || call.modules[op.module] < 0) continue;
      for (const int local : op.parameters)
        gather_for(call.modules[op.module], call.parameters[local], place, model, mesh, hooked);
    }
  }
  return hooked;
}

}  // namespace fsdp
