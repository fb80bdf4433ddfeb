#include "core/spec/module_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/nearest.h"
#include "core/model/op_shapes.h"

namespace fsdp {
namespace {

/// The part of a name after its last dot.
std::string_view last_part(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

template <class T>
std::vector<T> reordered(std::vector<T>& from, const std::vector<int>& order) {
  std::vector<T> to;
  to.reserve(order.size());
  for (const int index : order) to.push_back(std::move(from[index]));
  return to;
}

std::vector<int> inverse(const std::vector<int>& order, std::size_t size) {
  std::vector<int> position(size, -1);
  for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<int>(i);
  return position;
}

/// Only the nearest name: a model has too many to list.
std::string hint_of(std::string_view name, const std::vector<std::string>& names) {
  const auto nearest = nearest_name(name, names);
  return nearest ? fmt::format("Did you mean \"{}\"?", *nearest) : "Write its fully qualified name.";
}

}  // namespace

ModuleTree::ModuleTree(Model& model) : model_(model) {
  model_.modules.push_back(Module{});
  model_.modules.front().called = true;
  module_ids_.emplace("", 0);
}

int ModuleTree::module(const std::string& name) {
  if (const auto found = module_ids_.find(name); found != module_ids_.end()) return found->second;
  return module(name, module(std::string(parent_name(name))));
}

int ModuleTree::module(const std::string& name, int parent) {
  const int id = static_cast<int>(model_.modules.size());
  const auto [entry, is_new] = module_ids_.try_emplace(name, id);
  if (!is_new) return entry->second;
  Module& made = model_.modules.emplace_back();
  made.name = name;
  made.parent = parent;
  made.called = false;
  model_.modules[parent].children.push_back(id);
  return id;
}

std::optional<int> ModuleTree::find(const std::string& name) const {
  const auto found = module_ids_.find(name);
  return found == module_ids_.end() ? std::nullopt : std::optional(found->second);
}

Error ModuleTree::unknown_module(const std::string& name, const std::string& where) const {
  std::vector<std::string> names;
  for (const Module& module : model_.modules) {
    if (!module.name.empty()) names.push_back(module.name);
  }
  return Error{where, fmt::format("There is no module \"{}\".", name), hint_of(name, names)};
}

void ModuleTree::describe(int module, std::string_view class_name, bool called) {
  Module& described = model_.modules[module];
  if (described.class_name.empty()) described.class_name = class_name;
  described.called = described.called || called;
}

Result<int> ModuleTree::parameter(const std::string& name, int module, const Shape& shape, Dtype dtype, bool fixed,
                                  const std::string& where) {
  const int id = static_cast<int>(model_.parameters.size());
  if (const auto [entry, is_new] = parameter_ids_.try_emplace(name, id); !is_new) {
    const Shape& known = model_.parameters[entry->second].shape;
    if (known == shape) return entry->second;
    return failure(
        where, fmt::format("The parameter \"{}\" is {} here and {} before.", name, to_string(shape), to_string(known)));
  }
  Parameter& made = model_.parameters.emplace_back();
  made.name = name;
  made.shape = shape;
  made.dtype = dtype;
  made.trainable = !fixed;
  made.module = module;
  model_.modules[module].parameters.push_back(id);
  tied_to_.push_back(id);
  fixed_.push_back(fixed);
  return id;
}

void ModuleTree::buffer(Buffer buffer) {
  if (buffer_names_.insert(buffer.name).second) model_.buffers.push_back(std::move(buffer));
}

Errors ModuleTree::tie(const std::vector<SpecTie>& ties) {
  Errors errors;
  const auto find = [&](const std::string& name, const std::string& where) {
    const auto found = parameter_ids_.find(name);
    if (found != parameter_ids_.end()) return found->second;
    std::vector<std::string> names;
    for (const Parameter& parameter : model_.parameters) names.push_back(parameter.name);
    errors.push_back(Error{where, fmt::format("There is no parameter \"{}\".", name), hint_of(name, names)});
    return -1;
  };
  for (const SpecTie& tie : ties) {
    const int alias = find(tie.alias, tie.where);
    int kept = find(tie.kept, tie.where);
    if (alias < 0 || kept < 0) continue;
    while (tied_to_[kept] != kept) kept = tied_to_[kept];
    if (kept == alias) {
      errors.push_back(Error{tie.where, fmt::format("\"{}\" is tied to itself in a circle.", tie.alias),
                             "One parameter of a group keeps its name, and the others are tied to it."});
      continue;
    }
    const Parameter& alias_parameter = model_.parameters[alias];
    const Parameter& kept_parameter = model_.parameters[kept];
    if (alias_parameter.shape != kept_parameter.shape) {
      errors.push_back(Error{tie.where,
                             fmt::format("\"{}\" is {}, but \"{}\" is {}.", tie.alias, to_string(alias_parameter.shape),
                                         tie.kept, to_string(kept_parameter.shape)),
                             "Tied parameters have one shape."});
      continue;
    }
    tied_to_[alias] = kept;
  }
  for (std::size_t i = 0; i < tied_to_.size(); ++i) {
    int kept = static_cast<int>(i);
    while (tied_to_[kept] != kept) kept = tied_to_[kept];
    tied_to_[i] = kept;
    if (kept != static_cast<int>(i)) model_.parameters[kept].tied_names.push_back(model_.parameters[i].name);
  }
  return errors;
}

std::vector<int> ModuleTree::preorder() const {
  std::vector<int> order;
  std::vector<int> stack = {0};
  order.reserve(model_.modules.size());
  while (!stack.empty()) {
    const int id = stack.back();
    stack.pop_back();
    order.push_back(id);
    const auto& children = model_.modules[id].children;
    stack.insert(stack.end(), children.rbegin(), children.rend());
  }
  return order;
}

void ModuleTree::renumber_modules(const std::vector<int>& order) {
  const std::vector<int> position = inverse(order, model_.modules.size());
  const auto move_ids = [&](std::vector<int>& ids) {
    for (int& id : ids) id = id < 0 ? id : position[id];
  };
  model_.modules = reordered(model_.modules, order);
  for (Module& module : model_.modules) {
    if (module.parent >= 0) module.parent = position[module.parent];
    move_ids(module.children);
  }
  for (Parameter& parameter : model_.parameters) parameter.module = position[parameter.module];
  for (Call& call : model_.calls) {
    if (call.module >= 0) call.module = position[call.module];
    move_ids(call.modules);
  }
}

void ModuleTree::renumber_parameters() {
  std::vector<int> order;
  order.reserve(model_.parameters.size());
  for (const Module& module : model_.modules) {
    for (const int id : module.parameters) {
      if (tied_to_[id] == id) order.push_back(id);
    }
  }
  const std::vector<int> position = inverse(order, model_.parameters.size());
  const auto move_ids = [&](std::vector<int>& ids) {
    for (int& id : ids) id = position[tied_to_[id]];
  };
  for (Module& module : model_.modules) move_ids(module.parameters);
  for (Call& call : model_.calls) move_ids(call.parameters);
  model_.parameters = reordered(model_.parameters, order);
  std::vector<bool> fixed;
  for (const int id : order) fixed.push_back(fixed_[id]);
  fixed_ = std::move(fixed);
}

Errors ModuleTree::finish(const std::vector<SpecPattern>& registration) {
  Errors errors;
  // Rank of each module among its siblings: listed ones first, then by creation.
  std::vector<int> rank(model_.modules.size());
  for (std::size_t i = 0; i < rank.size(); ++i) rank[i] = static_cast<int>(registration.size() + i);
  for (std::size_t i = 0; i < registration.size(); ++i) {
    if (const auto module = find(registration[i].text)) {
      rank[*module] = static_cast<int>(i);
    } else {
      errors.push_back(unknown_module(registration[i].text, registration[i].where));
    }
  }
  for (Module& module : model_.modules) {
    std::stable_sort(module.children.begin(), module.children.end(), [&](int a, int b) { return rank[a] < rank[b]; });
    // An undescribed module only contains others: a list of numbered ones, or a plain module.
    if (module.class_name.empty()) {
      const bool is_list = std::all_of(module.children.begin(), module.children.end(),
                                       [&](int child) { return is_number(last_part(model_.modules[child].name)); });
      module.class_name = is_list && !module.children.empty() ? "ModuleList" : "Module";
    }
  }
  renumber_modules(preorder());
  renumber_parameters();
  return errors;
}

}  // namespace fsdp
