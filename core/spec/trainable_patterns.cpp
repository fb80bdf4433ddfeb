#include "core/spec/trainable_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/name_pattern.h"
#include "core/base/nearest.h"
#include "core/spec/adapters.h"

namespace fsdp {
namespace {

bool means(const SpecPattern& pattern, const Parameter& parameter) {
  return matches(pattern.text, parameter.name) || matches(pattern.text, name_before_adapters(parameter.name)) ||
         std::any_of(parameter.tied_names.begin(), parameter.tied_names.end(),
                     [&](const std::string& name) { return matches(pattern.text, name); });
}

Error matches_nothing(const SpecPattern& pattern, const Model& model) {
  std::set<std::string> known;
  const bool has_star = pattern.text.find('*') != std::string::npos;
  const auto add = [&](const std::string& name) {
    if (!name.empty()) known.insert(has_star ? without_numbers(name) : name);
  };
  for (const Module& module : model.modules) add(module.name);
  for (const Parameter& parameter : model.parameters) add(parameter.name);
  const std::vector<std::string> names(known.begin(), known.end());
  const auto nearest = nearest_name(pattern.text, names);
  return Error{.where = pattern.where,
               .what = fmt::format("The pattern \"{}\" matches no parameter of {}.", pattern.text, model.name),
               .hint = nearest ? fmt::format("Did you mean \"{}\"?", *nearest)
                               : "Write a module or a parameter, with * for any characters."};
}

}  // namespace

Errors apply_patterns(const std::vector<SpecPattern>& trainable, const std::vector<SpecPattern>& frozen,
                      const std::function<bool(std::size_t parameter)>& is_fixed, Model& model) {
  Errors errors;
  if (!trainable.empty()) {
    for (Parameter& parameter : model.parameters) parameter.trainable = false;
  }
  const auto apply = [&](const std::vector<SpecPattern>& patterns, bool trains) {
    for (const SpecPattern& pattern : patterns) {
      bool found = false;
      for (std::size_t i = 0; i < model.parameters.size(); ++i) {
        if (!means(pattern, model.parameters[i])) continue;
        found = true;
        model.parameters[i].trainable = trains && !is_fixed(i);
      }
      if (!found) errors.push_back(matches_nothing(pattern, model));
    }
  };
  apply(trainable, true);
  apply(frozen, false);
  return errors;
}

std::vector<SpecPattern> patterns_of(const std::vector<std::string>& texts, const std::string& flag) {
  std::vector<SpecPattern> patterns;
  for (const std::string& text : texts) patterns.push_back(SpecPattern{.text = text, .where = flag});
  return patterns;
}

}  // namespace fsdp
