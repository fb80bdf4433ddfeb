#pragma once

// The shipped models by name, and the model of a plan file.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// The folder of the shipped models, relative to this program, or the path in FSDP_PLAN_MODEL_SPECS.
std::string library_of_process();

/// Names of the shipped models, sorted: "qwen3_tts". Empty if the folder does not exist.
std::vector<std::string> model_names(const std::string& library);

/// The file of an argument: "-", an existing path, or a shipped model with or without ".json", by its own name or by
/// that on the Hugging Face hub ("Qwen/Qwen3-8B"). Also accepts a path beside `near` (the folder of a plan file).
/// Error: neither, with the nearest shipped name.
Result<std::string> find_model_file(const std::string& argument, const std::string& library,
                                    const std::string& near = "");

/// Reads the specs of models beside the trained one into `Workload::also`, as find_model_file finds them. Adds their
/// errors to `errors`.
void read_other_models(const std::vector<OtherModel>& also, const std::string& library, Workload& workload,
                       Errors& errors, const std::string& near = "");

/// A model in the sizes of a plan.
struct PlannedModel {
  ModelSpec spec;
  Workload workload;
  Model model;
};

/// The model of a plan that was read from `plan_path`. Error: the model file was the standard input or is missing, and
/// all faults of the model.
Result<PlannedModel> model_of_plan(const Plan& plan, const std::string& plan_path, const std::string& library);

/// The sizes of a plan that differ from its model's own: a plan names all of its sizes, but those that follow from
/// others are formulas of the model. Errors: those of the model.
Result<std::vector<Dimension>> own_sizes_of(const Plan& plan, const ModelSpec& spec);

}  // namespace fsdp
