// PyTorch's auto-wrap policies, run on the tree of modules as PyTorch runs them.
//
//   size    _recursive_wrap with size_based_auto_wrap_policy. Let n be the elements of all parameters below a module,
//           each once. If n is below the threshold, or the module is a MultiheadAttention, neither it nor anything
//           inside becomes a unit. Otherwise the policy visits the children in order of registration, and sums what
//           they wrapped; a child that is a unit counts with all of its n. The module itself is a unit if n less that
//           sum reaches the threshold and it is no ModuleList or ModuleDict. It then counts with its n, otherwise with
//           the sum. So the policy works from the leaves up, and the threshold is inclusive.
//   class   ModuleWrapPolicy, transformer_auto_wrap_policy: every module of the named classes. "adapters" is no class:
//           it takes what fsdp_auto_wrap_policy of PEFT does beside them, each module without children whose weight is
//           trained. Neither is "blocks", the repeated blocks whatever their class.
//
// The root is always a unit, and the policy does not visit it. A parameter with two names in two modules counts in
// both, so that the wrapped elements may exceed the total; PyTorch subtracts them anyway, and so do we. The policy
// visits a module with two names (the embeddings of T5) under both.
//
//   Sequential of two Linear of 100, a Linear of 150, a ModuleList of three of 100, a MultiheadAttention of 400;
//   threshold 150: the Sequential (200) and the Linear (150) are units, and the root keeps 700.
//
// Sources: torch/distributed/fsdp/wrap.py of PyTorch 2.11.0: _recursive_wrap, size_based_auto_wrap_policy with its
// FORCE_LEAF_MODULES and EXCLUDE_WRAP_MODULES, ModuleWrapPolicy, _module_wrap_policy; peft/utils/other.py
// (fsdp_auto_wrap_policy), PEFT 0.21.2.
// tests/command/wrap_policies_test.py compares our results with theirs.
//
// Not modeled: classes derived from the named ones, which PyTorch accepts (isinstance), because a model knows the class
// of a module and not its bases; the exception is torch.nn's output projection of attention, which is a Linear.
// ignored_modules and ignored_states. The unit that FSDP1 adds for each batch norm under mixed precision.

#include "planner/space/wrap_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/base/name_ranges.h"
#include "core/base/nearest.h"
#include "core/base/split.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kForcedLeaf = "MultiheadAttention";
constexpr std::array<std::string_view, 2> kNeverWrapped = {"ModuleList", "ModuleDict"};
/// A class that torch.nn uses inside its own modules, and its base, which users name.
constexpr std::pair<std::string_view, std::string_view> kDerived = {"NonDynamicallyQuantizableLinear", "Linear"};
/// The class name of a module for which the spec gives none, and a base of every class.
constexpr std::string_view kNoClass = "Module";

bool is_never_wrapped(std::string_view class_name) {
  return std::find(kNeverWrapped.begin(), kNeverWrapped.end(), class_name) != kNeverWrapped.end();
}

/// The trained modules without children, as PEFT's fsdp_auto_wrap_policy takes them beside classes.
bool is_trained_leaf(const Model& model, const Module& module) {
  const auto is_weight = [&](int p) {
    const Parameter& parameter = model.parameters[p];
    return parameter.trainable && parameter.name.ends_with(".weight");
  };
  return module.children.empty() && std::any_of(module.parameters.begin(), module.parameters.end(), is_weight);
}

bool is_repeated(const Model& model, const Module& module) {
  const auto index = static_cast<int>(&module - model.modules.data());
  return std::any_of(model.calls.begin(), model.calls.end(),
                     [&](const Call& call) { return call.repeated && call.module == index; });
}

bool is_class(const Model& model, const Module& module, std::string_view name) {
  if (name == kAdaptersClass) return is_trained_leaf(model, module);
  if (name == kBlocksClass) return is_repeated(model, module);
  return module.class_name == name || (module.class_name == kDerived.first && name == kDerived.second);
}

/// Counts that policies use.
struct Counts {
  /// [num_modules] Elements of the parameters below each module, each parameter once regardless of its names.
  std::vector<std::int64_t> elements;
  /// A module registered under a second name. Only its parameters reveal that, because a model lists each module once.
  struct Again {
    int module = 0;  ///< The module that it repeats.
    std::int64_t elements = 0;
  };
  std::vector<std::vector<Again>> again;  ///< [num_modules] The repeated modules inside each module.
};

class Counter {
 public:
  explicit Counter(const Model& model) : model_(model), counted_for_(model.modules.size(), -1) {
    for (std::size_t i = 0; i < model.modules.size(); ++i) places_[model.modules[i].name] = static_cast<int>(i);
    counts_.elements.resize(model.modules.size());
    counts_.again.resize(model.modules.size());
  }

  Counts count() {
    for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
      const Parameter& parameter = model_.parameters[p];
      count_from(parameter.module, static_cast<int>(p));
      for (const std::string& alias : parameter.tied_names) count_alias(alias, static_cast<int>(p));
    }
    for (const auto& [name, again] : again_) counts_.again[again.first].push_back(again.second);
    return std::move(counts_);
  }

 private:
  void count_from(int module, int parameter) {
    for (; module >= 0 && counted_for_[module] != parameter; module = model_.modules[module].parent) {
      counted_for_[module] = parameter;
      counts_.elements[module] += num_elements(model_.parameters[parameter].shape);
    }
  }

  void count_alias(const std::string& alias, int parameter) {
    std::string_view holder = parent_name(alias);
    auto found = places_.find(holder);
    if (found == places_.end()) {
      std::string_view above = holder;
      while (found == places_.end()) found = places_.find(above = parent_name(above));
      auto& [place, again] = again_[std::string(holder)];
      place = found->second;
      again.module = model_.parameters[parameter].module;
      again.elements += num_elements(model_.parameters[parameter].shape);
    }
    count_from(found->second, parameter);
  }

  const Model& model_;
  std::map<std::string_view, int> places_;
  std::map<std::string, std::pair<int, Counts::Again>> again_;
  std::vector<int> counted_for_;
  Counts counts_;
};

Counts counts_of(const Model& model) {
  return Counter(model).count();
}

class SizePolicy {
 public:
  SizePolicy(const Model& model, std::int64_t min_elements)
      : model_(model), min_elements_(min_elements), counts_(counts_of(model)) {}

  PolicyRun run() {
    visit(0);
    return std::move(run_);
  }

 private:
  /// Returns the elements that are wrapped below the module or with it.
  std::int64_t visit(int module) {
    const std::string& class_name = model_.modules[module].class_name;
    const std::int64_t elements = counts_.elements[module];
    const bool is_root = module == 0;
    const std::size_t place = run_.visits.size();
    run_.visits.push_back({module, is_root ? PolicyVerdict::Root : PolicyVerdict::TooSmall, elements, elements});
    if (elements < min_elements_) return 0;
    if (class_name == kForcedLeaf) {
      if (!is_root) run_.visits[place].verdict = PolicyVerdict::ForcedLeaf;
      return 0;
    }
    std::int64_t wrapped = 0;
    for (const int child : model_.modules[module].children) wrapped += visit(child);
    for (const Counts::Again& again : counts_.again[module]) {
      const std::string& of_again = model_.modules[again.module].class_name;
      const bool is_unit = again.elements >= min_elements_ && of_again != kForcedLeaf && !is_never_wrapped(of_again);
      if (is_unit) wrapped += again.elements;
    }
    PolicyVisit& seen = run_.visits[place];
    seen.remaining = elements - wrapped;
    if (is_root) return wrapped;
    seen.verdict = seen.remaining < min_elements_ ? PolicyVerdict::Remainder
                   : is_never_wrapped(class_name) ? PolicyVerdict::Excluded
                                                  : PolicyVerdict::Unit;
    if (seen.verdict != PolicyVerdict::Unit) return wrapped;
    run_.units.push_back(module);
    return elements;
  }

  const Model& model_;
  std::int64_t min_elements_;
  Counts counts_;
  PolicyRun run_;
};

class ClassPolicy {
 public:
  ClassPolicy(const Model& model, const std::vector<std::string>& classes)
      : model_(model), classes_(classes), counts_(counts_of(model)) {}

  PolicyRun run() {
    visit(0);
    return std::move(run_);
  }

 private:
  std::int64_t visit(int module) {
    const bool is_named = has_named_class(module);
    const std::size_t place = run_.visits.size();
    const PolicyVerdict verdict = module == 0 ? PolicyVerdict::Root
                                  : is_named  ? PolicyVerdict::Unit
                                              : PolicyVerdict::OtherClass;
    run_.visits.push_back({module, verdict, counts_.elements[module], 0});
    std::int64_t wrapped = 0;
    for (const int child : model_.modules[module].children) wrapped += visit(child);
    for (const Counts::Again& again : counts_.again[module]) {
      if (has_named_class(again.module)) wrapped += again.elements;
    }
    run_.visits[place].remaining = counts_.elements[module] - wrapped;
    if (verdict != PolicyVerdict::Unit) return wrapped;
    run_.units.push_back(module);
    return counts_.elements[module];
  }

  bool has_named_class(int module) const {
    return std::any_of(classes_.begin(), classes_.end(),
                       [&](const std::string& name) { return is_class(model_, model_.modules[module], name); });
  }

  const Model& model_;
  const std::vector<std::string>& classes_;
  Counts counts_;
  PolicyRun run_;
};

/// "model.layers.*.mlp" for "model.layers.12.mlp": replaces the first `most` numbers by "*". A number is a whole part,
/// or the end of a part after an underscore (core/base/name_ranges.h).
std::string starred(std::string_view name, std::size_t most = std::string_view::npos) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(name, '.')) {
    const std::size_t digits = part.find_last_not_of("0123456789") + 1;  // 0 if all characters are digits.
    const bool is_number = digits < part.size() && (digits == 0 || part[digits - 1] == '_');
    const bool is_starred = is_number && most > 0;
    if (is_starred) --most;
    parts.push_back(is_starred ? fmt::format("{}*", part.substr(0, digits)) : std::string(part));
  }
  return fmt::format("{}", fmt::join(parts, "."));
}

/// Values by key, in the order in which the keys were added.
template <class Key, class Value>
class Groups {
 public:
  struct Group {
    Key key;
    std::vector<Value> values;
  };

  void add(Key key, Value value) {
    const auto [place, is_new] = places_.try_emplace(key, groups_.size());
    if (is_new) groups_.push_back({std::move(key), {}});
    groups_[place->second].values.push_back(std::move(value));
  }
  const std::vector<Group>& all() const { return groups_; }

 private:
  std::vector<Group> groups_;
  std::map<Key, std::size_t> places_;
};

/// "model.layers.{0..47}.mlp.experts.{0..127}": folds rows of rows, even if other names stand between.
std::vector<std::string> rows_of_names(const std::vector<std::string>& names) {
  Groups<std::string, std::string> alike;
  for (const std::string& name : names) alike.add(starred(name, 1), name);
  std::vector<std::string> rows;
  for (const auto& group : alike.all()) {
    const std::vector<std::string> folded = fold_names(group.values);
    rows.insert(rows.end(), folded.begin(), folded.end());
  }
  return fold_names(fold_names(rows));
}

/// Classes with a module that can be a unit, each once, in order of registration. Omits modules without a class.
std::vector<std::string> classes_of_units(const Model& model) {
  const std::vector<Obstacle> obstacles = obstacles_of(model);
  std::vector<std::string> classes;
  for (std::size_t i = 1; i < model.modules.size(); ++i) {
    const std::string& name = model.modules[i].class_name;
    if (name == kNoClass || obstacles[i] != Obstacle::None) continue;
    if (std::find(classes.begin(), classes.end(), name) == classes.end()) classes.push_back(name);
  }
  return classes;
}

std::string hint_of_class(const std::string& name, std::vector<std::string> known) {
  const auto nearest = nearest_name(name, known);
  if (!nearest) return suggest_name(name, known);
  std::erase(known, *nearest);
  known.insert(known.begin(), *nearest);
  const std::vector<std::string_view> names(known.begin(), known.end());
  return fmt::format("Did you mean \"{}\"? Known are {}.", *nearest, join_names(names));
}

Errors check_classes(const Model& model, const Wrap& wrap) {
  Errors errors;
  const std::vector<std::int64_t> elements = counts_of(model).elements;
  for (const std::string& name : wrap.classes) {
    bool is_there = false;
    bool has_parameters = false;
    for (std::size_t i = 1; i < model.modules.size(); ++i) {
      if (name == kNoClass || !is_class(model, model.modules[i], name)) continue;
      is_there = true;
      has_parameters = has_parameters || elements[i] > 0;
    }
    if (!is_there) {
      errors.push_back({"--wrap", fmt::format("No module of {} below the root is a \"{}\".", model.name, name),
                        hint_of_class(name, classes_of_units(model))});
    } else if (!has_parameters) {
      errors.push_back({"--wrap",
                        fmt::format("No \"{}\" of {} has parameters, so there is nothing to shard.", name, model.name),
                        "Leave it out."});
    }
  }
  return errors;
}

/// One error for all chosen modules with the same obstacle to being a unit.
Errors check_units(const Model& model, const std::vector<bool>& chosen, const Wrap& wrap) {
  const std::vector<Obstacle> obstacles = obstacles_of(model);
  Groups<std::pair<std::string, Obstacle>, int> refused;
  for (std::size_t i = 1; i < chosen.size(); ++i) {
    if (!chosen[i] || obstacles[i] == Obstacle::None) continue;
    refused.add({starred(model.modules[i].name), obstacles[i]}, static_cast<int>(i));
  }
  Errors errors;
  for (const auto& [key, modules] : refused.all()) {
    const bool is_one = modules.size() == 1;
    std::vector<std::string> names;
    for (const int module : modules) names.push_back(model.modules[module].name);
    std::string text;
    for (const std::string& row : rows_of_names(names)) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", row);
    errors.push_back(
        {"--wrap",
         fmt::format("{} chooses {}, which cannot be {}: {}{}.", to_text(wrap), text, is_one ? "a unit" : "units",
                     is_one ? "" : "of the first, ", describe(model, modules.front(), key.second)),
         ""});
  }
  if (!errors.empty()) {
    errors.back().hint = wrap.min_elements > 0 ? "Take another number, or write the names of the units."
                                               : "Take another class, or write the names of the units.";
  }
  return errors;
}

std::string why(const PolicyVisit& visit, const Module& module, const Wrap& wrap) {
  const std::string threshold = format_elements(wrap.min_elements);
  switch (visit.verdict) {
    case PolicyVerdict::Root:
      return "the root is a unit in any case";
    case PolicyVerdict::Unit:
      if (wrap.min_elements == 0) {
        return visit.elements == 0 ? "its class is named, but it has no parameters" : "its class is named";
      }
      return fmt::format("{} remain, of at least {}", format_elements(visit.remaining), threshold);
    case PolicyVerdict::TooSmall:
      return fmt::format("fewer than {}: not looked into", threshold);
    case PolicyVerdict::Remainder:
      return fmt::format("{} remain outside nested units, fewer than {}", format_elements(visit.remaining), threshold);
    case PolicyVerdict::Excluded:
      return fmt::format("{} remain, but its class is excluded: {}", format_elements(visit.remaining),
                         module.class_name);
    case PolicyVerdict::ForcedLeaf:
      return fmt::format("{} is a forced leaf: neither it nor what is inside", module.class_name);
    case PolicyVerdict::OtherClass:
      return "its class is not named";
  }
  return "";
}

/// Folds modules whose names differ in numbers only, and for which the policy found the same, if their names make one
/// row.
std::vector<PolicyRow> rows_of(const Model& model, const Wrap& wrap, const PolicyRun& run) {
  using Kind = std::tuple<std::string, std::string, PolicyVerdict, std::int64_t, std::int64_t>;
  Groups<Kind, PolicyVisit> kinds;
  for (const PolicyVisit& visit : run.visits) {
    // All remaining modules have this verdict; the root's figures include their parameters.
    if (visit.verdict == PolicyVerdict::OtherClass) continue;
    if (visit.elements == 0 && visit.verdict == PolicyVerdict::TooSmall) continue;
    const Module& module = model.modules[visit.module];
    kinds.add({starred(module.name), module.class_name, visit.verdict, visit.elements, visit.remaining}, visit);
  }
  std::vector<PolicyRow> rows;
  for (const auto& [kind, visits] : kinds.all()) {
    const PolicyVisit& first = visits.front();
    const Module& module = model.modules[first.module];
    std::vector<std::string> names;
    for (const PolicyVisit& visit : visits) names.push_back(model.modules[visit.module].name);
    PolicyRow row{.modules = fmt::format("{}", fmt::join(rows_of_names(names), ", ")),
                  .class_name = module.class_name,
                  .count = static_cast<std::int64_t>(names.size()),
                  .elements = first.elements,
                  .remaining = first.remaining};
    const bool is_chosen = first.verdict == PolicyVerdict::Root || first.verdict == PolicyVerdict::Unit;
    row.is_unit = is_chosen && (first.elements > 0 || first.module == 0);
    row.why = why(first, module, wrap);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The elements in no unit, and the topmost modules that hold such parameters and contain no unit.
void find_rest(const Model& model, const std::vector<bool>& is_unit, PolicyExplanation& explanation) {
  std::vector<bool> holds_unit = is_unit;
  std::vector<bool> in_unit = is_unit;
  holds_unit[0] = true;
  for (std::size_t i = model.modules.size(); i-- > 1;) {
    if (holds_unit[i]) holds_unit[model.modules[i].parent] = true;
  }
  for (std::size_t i = 1; i < model.modules.size(); ++i) {
    if (in_unit[model.modules[i].parent]) in_unit[i] = true;
  }
  std::vector<bool> is_told(model.modules.size(), false);
  for (const Parameter& parameter : model.parameters) {
    if (in_unit[parameter.module]) continue;
    explanation.root_elements += num_elements(parameter.shape);
    int module = parameter.module;
    while (!holds_unit[module] && !holds_unit[model.modules[module].parent]) module = model.modules[module].parent;
    is_told[module] = true;
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    if (is_told[i]) names.push_back(model.modules[i].name);
  }
  explanation.in_root = rows_of_names(names);
}

std::vector<bool> units_with_parameters(const Model& model, const PolicyRun& run) {
  std::vector<bool> chosen(model.modules.size(), false);
  const std::vector<std::int64_t> elements = counts_of(model).elements;
  // A unit without parameters has no collective: fully_shard makes an empty state for it.
  for (const int module : run.units) chosen[module] = elements[module] > 0;
  return chosen;
}

}  // namespace

PolicyRun run_policy(const Model& model, const Wrap& wrap) {
  if (wrap.min_elements > 0) return SizePolicy(model, wrap.min_elements).run();
  return ClassPolicy(model, wrap.classes).run();
}

Result<Wrapping> wrapping_by_name(const Model& model, const Wrap& wrap) {
  if (!is_policy(wrap)) return wrapping_of_patterns(model, wrap.patterns);
  Errors errors = check_classes(model, wrap);
  const std::vector<bool> chosen = units_with_parameters(model, run_policy(model, wrap));
  append(errors, check_units(model, chosen, wrap));
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return wrapping_of_modules(model, chosen);
}

PolicyExplanation explain_policy(const Model& model, const Wrap& wrap) {
  const PolicyRun run = run_policy(model, wrap);
  PolicyExplanation explanation{.policy = to_text(wrap), .rows = rows_of(model, wrap, run)};
  find_rest(model, units_with_parameters(model, run), explanation);
  return explanation;
}

std::string format_elements(std::int64_t elements) {
  constexpr std::array<std::pair<double, std::string_view>, 3> kScales = {{{1e9, "G"}, {1e6, "M"}, {1e3, "K"}}};
  for (const auto& [scale, letter] : kScales) {
    const double scaled = static_cast<double>(elements) / scale;
    if (scaled < 0.9995) continue;
    return fmt::format("{:.{}f} {}", scaled, scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0, letter);
  }
  return std::to_string(elements);
}

}  // namespace fsdp::planner
