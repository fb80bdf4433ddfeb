// The units that our auto-wrap policies choose, printed for a test in Python that holds them against PyTorch's.
//
//   print_wrap_policies < MODELS
//
// MODELS is JSON, {"models": [...]}: for each its `modules`, as an expanded model has them (docs/file_formats.md), in
// order of registration and parents before their children; its `parameters`, each with its `names` in order of
// registration and its `elements`; and `policies`, texts of --wrap. Printed is, for each policy of each model, a line
// of JSON: {"units": [...], "visited": [[name, elements, remaining], ...]}; `remaining` is null where it was not looked
// into.

#include <iostream>
#include <iterator>
#include <map>
#include <string>

#include "core/base/json_document.h"
#include "planner/space/wrap_policy.h"

namespace fsdp::planner {
namespace {

Model model_of(const JsonValue& value) {
  Model model;
  std::map<std::string, int> places;
  for (const JsonValue& each : value.find("modules")->elements) {
    Module module;
    module.name = each.find("name")->text;
    module.class_name = each.find("class")->text;
    const int place = static_cast<int>(model.modules.size());
    places[module.name] = place;
    if (place > 0) {
      module.parent = places.at(std::string(parent_name(module.name)));
      model.modules[module.parent].children.push_back(place);
    }
    model.modules.push_back(std::move(module));
  }
  for (const JsonValue& each : value.find("parameters")->elements) {
    Parameter parameter;
    for (const JsonValue& name : each.find("names")->elements) parameter.tied_names.push_back(name.text);
    parameter.name = parameter.tied_names.front();
    parameter.tied_names.erase(parameter.tied_names.begin());
    parameter.shape = {each.find("elements")->integer};
    parameter.module = places.at(std::string(parent_name(parameter.name)));
    model.parameters.push_back(std::move(parameter));
  }
  return model;
}

void print(const Model& model, const PolicyRun& run) {
  std::string text = "{\"units\": [";
  const auto add = [&](int module) { text += "\"" + model.modules[module].name + "\""; };
  for (std::size_t i = 0; i < run.units.size(); ++i) {
    if (i > 0) text += ", ";
    add(run.units[i]);
  }
  text += "], \"visited\": [";
  for (std::size_t i = 0; i < run.visits.size(); ++i) {
    const PolicyVisit& visit = run.visits[i];
    text += i > 0 ? ", [" : "[";
    add(visit.module);
    const bool is_entered = visit.verdict != PolicyVerdict::TooSmall && visit.verdict != PolicyVerdict::ForcedLeaf;
    text += ", " + std::to_string(visit.elements) + ", ";
    text += (is_entered ? std::to_string(visit.remaining) : "null") + "]";
  }
  std::cout << text << "]}\n";
}

int run() {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const Result<JsonDocument> document = parse_json(text, "standard input");
  if (!document) {
    std::cerr << to_string(document.error().front()) << "\n";
    return 2;
  }
  for (const JsonValue& value : document->root.find("models")->elements) {
    const Model model = model_of(value);
    for (const JsonValue& policy : value.find("policies")->elements) {
      const Result<Wrap> wrap = parse_wrap(policy.text);
      if (!wrap) {
        std::cerr << to_string(wrap.error().front()) << "\n";
        return 2;
      }
      print(model, run_policy(model, *wrap));
    }
  }
  return 0;
}

}  // namespace
}  // namespace fsdp::planner

int main() {
  return fsdp::planner::run();
}
