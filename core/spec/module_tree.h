#pragma once

// The modules and parameters of an unfinished model: found by name, made on first use, and sorted into PyTorch's order
// at the end.

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/spec/model_spec.h"

namespace fsdp {

class ModuleTree {
 public:
  explicit ModuleTree(Model& model);

  /// The module with this name; makes it and its parents if missing.
  int module(const std::string& name);
  /// The same with a known parent.
  int module(const std::string& name, int parent);
  /// The module with this name; `nullopt` if missing.
  std::optional<int> find(const std::string& name) const;
  /// "There is no module ...", with the nearest name.
  Error unknown_module(const std::string& name, const std::string& where) const;
  /// Sets the class of a module; an empty name leaves it undecided.
  void describe(int module, std::string_view class_name, bool called);

  /// The parameter with this name; registers it on a module on first use. Error, with the place `where`: it exists with
  /// another shape.
  Result<int> parameter(const std::string& name, int module, const Shape& shape, Dtype dtype, bool fixed,
                        const std::string& where);
  /// The same for a buffer; one with a known name is not made again.
  void buffer(Buffer buffer);

  /// Makes each alias another name of its parameter. Error: unknown names (with the nearest one), different shapes,
  /// circles.
  Errors tie(const std::vector<SpecTie>& ties);

  /// Sorts modules, parameters and buffers into the order of registration, and renumbers all references. The children
  /// in `registration` come first, in that order; the others follow in the order in which they were made. Error: a name
  /// in `registration` that is not a module.
  Errors finish(const std::vector<SpecPattern>& registration);

  bool is_fixed(std::size_t parameter) const { return fixed_[parameter]; }

 private:
  std::vector<int> preorder() const;
  void renumber_modules(const std::vector<int>& order);
  void renumber_parameters();

  Model& model_;
  std::unordered_map<std::string, int> module_ids_;  // Only looked up, never walked.
  std::unordered_map<std::string, int> parameter_ids_;
  std::unordered_set<std::string> buffer_names_;
  std::vector<int> tied_to_;  // Per parameter: the one that replaces it, or itself.
  std::vector<bool> fixed_;
};

}  // namespace fsdp
