#include "tests/support/assemble_model.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace fsdp {

ModelAssembler::ModelAssembler(std::string name, Dtype dtype) : dtype_(dtype) {
  model_.name = std::move(name);
  model_.modules.push_back({.name = "", .class_name = "Model"});
}

void ModelAssembler::input(const std::string& name, Shape shape, std::optional<Dtype> dtype, bool loaded) {
  if (loaded) model_.inputs.push_back(static_cast<int>(model_.values.size()));
  model_.values.push_back({name, std::move(shape), dtype});
}

BlockBuilder ModelAssembler::block(const std::string& kind, const std::string& class_name) const {
  // Later values shadow earlier ones of the same name.
  std::vector<Value> available;
  for (const Value& value : model_.values) {
    std::erase_if(available, [&](const Value& other) { return other.name == value.name; });
    available.push_back(value);
  }
  return BlockBuilder(kind, class_name, available);
}

int ModelAssembler::value_of(const std::string& name) const {
  for (std::size_t v = model_.values.size(); v-- > 0;) {
    if (model_.values[v].name == name) return static_cast<int>(v);
  }
  std::cerr << "no value " << name << "\n";
  std::abort();
}

int ModelAssembler::parameter_of(const std::string& name) const {
  for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
    if (model_.parameters[p].name == name) return static_cast<int>(p);
  }
  std::cerr << "no parameter " << name << "\n";
  std::abort();
}

int ModelAssembler::module_at(const std::string& name, const std::string& class_name) {
  for (std::size_t m = 0; m < model_.modules.size(); ++m) {
    if (model_.modules[m].name == name) return static_cast<int>(m);
  }
  const auto dot = name.rfind('.');
  const int parent = dot == std::string::npos ? 0 : module_at(name.substr(0, dot), "ModuleList");
  const int module = static_cast<int>(model_.modules.size());
  model_.modules.push_back({.name = name, .class_name = class_name, .parent = parent});
  model_.modules[parent].children.push_back(module);
  return module;
}

void ModelAssembler::call(const std::string& name, BlockBuilder builder, bool repeated, bool outside) {
  auto finished = builder.finish();
  if (!finished) {
    for (const Error& error : finished.error()) std::cerr << to_string(error) << "\n";
    std::abort();
  }
  BlockDefinition& made = *finished;
  Call call{.repeated = repeated};
  call.module = outside ? -1 : 0;
  for (const BlockModule& module : made.block.modules) {
    std::string full = name;
    if (!module.name.empty()) full += (name.empty() ? "" : ".") + module.name;
    call.modules.push_back(outside ? -1 : module_at(full, module.class_name));
  }
  if (!outside) call.module = call.modules.front();
  for (std::size_t p = 0; p < made.parameters.size(); ++p) {
    const int module = call.modules[made.parameters[p].module];
    const std::string full = (name.empty() ? "" : name + ".") + made.parameters[p].name;
    const auto known = std::find_if(model_.parameters.begin(), model_.parameters.end(),
                                    [&](const Parameter& parameter) { return parameter.name == full; });
    const int parameter = static_cast<int>(known - model_.parameters.begin());
    if (known != model_.parameters.end()) {  // The module is called again.
      call.parameters.push_back(parameter);
      continue;
    }
    model_.parameters.push_back({.name = full, .shape = made.block.parameters[p], .dtype = dtype_, .module = module});
    model_.modules[module].parameters.push_back(parameter);
    call.parameters.push_back(parameter);
  }
  for (const std::string& input : made.input_names) call.inputs.push_back(value_of(input));
  for (std::size_t o = 0; o < made.output_names.size(); ++o) {
    const Value& inside = made.block.values[made.block.outputs[o]];
    call.outputs.push_back(static_cast<int>(model_.values.size()));
    model_.values.push_back({made.output_names[o], inside.shape, inside.dtype});
  }
  if (model_.blocks.empty() || model_.blocks.back() != made.block) model_.blocks.push_back(made.block);
  call.block = static_cast<int>(model_.blocks.size()) - 1;
  model_.calls.push_back(std::move(call));
}

void ModelAssembler::tie(const std::string& alias, const std::string& kept) {
  const int from = parameter_of(alias);
  const int to = parameter_of(kept);
  for (Call& call : model_.calls) std::replace(call.parameters.begin(), call.parameters.end(), from, to);
  for (Module& module : model_.modules) std::erase(module.parameters, from);
  model_.parameters[to].tied_names.push_back(alias);
  model_.parameters.erase(model_.parameters.begin() + from);
  const auto move_up = [&](int& parameter) { parameter -= parameter > from ? 1 : 0; };
  for (Call& call : model_.calls) std::for_each(call.parameters.begin(), call.parameters.end(), move_up);
  for (Module& module : model_.modules) std::for_each(module.parameters.begin(), module.parameters.end(), move_up);
}

void ModelAssembler::freeze(const std::string& prefix) {
  for (Parameter& parameter : model_.parameters) {
    if (parameter.name.starts_with(prefix)) parameter.trainable = false;
  }
}

Model ModelAssembler::finish(const std::string& loss) {
  model_.loss = value_of(loss);
  derive_gradient_flow(model_);
  return std::move(model_);
}

}  // namespace fsdp
