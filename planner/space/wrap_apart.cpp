// A unit owns the parameters below its module that no unit inside it owns. Their kind is whether they are trained, and
// their dtype. The unit keeps the kind with most elements. For each other parameter we cut out the outermost module
// that FSDP can gather by itself and whose parameters, among those of the unit, are all of that kind.
//
// Sources: peft/utils/other.py (fsdp_auto_wrap_policy), torch/distributed/fsdp/_flat_param.py
// (_validate_tensors_to_flatten), torch 2.11.

#include "planner/space/wrap_apart.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::planner {

namespace {

using PartKind = std::pair<bool, Dtype>;  // Whether it is trained, and its dtype.

PartKind kind_of(const Parameter& parameter, const Plan& base) {
  return {parameter.trainable, base.parameter_dtype.value_or(parameter.dtype)};
}

class Cutter {
 public:
  Cutter(const Model& model, const Plan& base, const Wrapping& wrapping)
      : model_(model), base_(base), obstacles_(obstacles_of(model)), is_unit_(model.modules.size(), false) {
    for (std::size_t m = 0; m < model.modules.size(); ++m) module_of_[model.modules[m].name] = static_cast<int>(m);
    is_unit_.front() = true;
    const auto mark = [&](const UnitModules& unit) {
      for (const std::string& name : unit) is_unit_[static_cast<std::size_t>(module_of_.at(name))] = true;
    };
    for (const auto& stack : wrapping.stacks) {
      for (const UnitGroup& group : stack) std::for_each(group.begin(), group.end(), mark);
    }
    std::for_each(wrapping.idle.begin(), wrapping.idle.end(), mark);
    std::for_each(wrapping.others.begin(), wrapping.others.end(), mark);
    std::for_each(wrapping.roots.begin(), wrapping.roots.end(), mark);
  }

  /// The units cut out of a unit, in the order of the modules.
  std::vector<UnitModules> cut_out_of(const UnitModules& unit) const {
    if (unit.size() != 1) return {};
    const int top = module_of_.at(unit.front());
    std::map<PartKind, std::int64_t> elements;
    std::map<int, std::set<PartKind>> kinds;  // Kinds of the unit's own parameters below each module.
    std::vector<const Parameter*> owned;
    for (const Parameter& parameter : model_.parameters) {
      if (owner_of(parameter.module) != top) continue;
      owned.push_back(&parameter);
      elements[kind_of(parameter, base_)] += num_elements(parameter.shape);
      for (int m = parameter.module; m != top; m = parent_of(m)) kinds[m].insert(kind_of(parameter, base_));
    }
    if (elements.size() < 2) return {};
    const PartKind most = std::max_element(elements.begin(), elements.end(), [](const auto& a, const auto& b) {
                            return a.second < b.second;
                          })->first;
    std::set<int> modules;
    for (const Parameter* parameter : owned) {
      if (kind_of(*parameter, base_) == most) continue;
      int outermost = -1;
      for (int m = parameter->module; m != top && kinds[m].size() == 1; m = parent_of(m)) {
        if (obstacles_[static_cast<std::size_t>(m)] == Obstacle::None) outermost = m;
      }
      if (outermost >= 0) modules.insert(outermost);
    }
    std::vector<UnitModules> units;
    for (const int m : modules) units.push_back({model_.modules[static_cast<std::size_t>(m)].name});
    return units;
  }

 private:
  int parent_of(int module) const { return model_.modules[static_cast<std::size_t>(module)].parent; }

  int owner_of(int module) const {
    while (!is_unit_[static_cast<std::size_t>(module)]) module = parent_of(module);
    return module;
  }

  const Model& model_;
  const Plan& base_;
  const std::vector<Obstacle> obstacles_;
  std::map<std::string, int> module_of_;
  std::vector<bool> is_unit_;
};

/// Each unit, after the units that are cut out of it.
std::vector<UnitModules> with_cuts(const Cutter& cutter, const std::vector<UnitModules>& units) {
  std::vector<UnitModules> result;
  for (const UnitModules& unit : units) {
    for (UnitModules& cut : cutter.cut_out_of(unit)) result.push_back(std::move(cut));
    result.push_back(unit);
  }
  return result;
}

}  // namespace

bool has_kinds(const Model& model, const Plan& base) {
  return std::any_of(model.parameters.begin(), model.parameters.end(), [&](const Parameter& parameter) {
    return kind_of(parameter, base) != kind_of(model.parameters.front(), base);
  });
}

void wrap_apart(const Model& model, const Plan& base, Wrapping& wrapping) {
  const Cutter cutter(model, base, wrapping);
  for (auto& stack : wrapping.stacks) {
    for (UnitGroup& group : stack) group = with_cuts(cutter, group);
  }
  std::vector<UnitModules> of_root = cutter.cut_out_of({model.modules.front().name});
  wrapping.others = with_cuts(cutter, wrapping.others);
  wrapping.others.insert(wrapping.others.end(), of_root.begin(), of_root.end());
}

}  // namespace fsdp::planner
