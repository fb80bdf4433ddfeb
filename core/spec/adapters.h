#pragma once

// The adapters of a model: which layers have them, and what is trained.

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/lora.h"
#include "core/spec/block_builder.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// The layers of a model's blocks that adapters target.
class FoundTargets {
 public:
  void note(const BlockBuilder& builder);

  /// Errors: a target that no layer has, with the nearest name, and adapters of a layer with a tied weight.
  Errors check(const LoraOptions& lora, const ModelSpec& spec) const;

 private:
  std::vector<bool> found_;
  std::vector<bool> saved_;
  std::vector<std::string> names_;
};

/// Whether a parameter belongs to adapters, by PEFT's own rule: a part of its name begins with "lora_", or it belongs
/// to a trained copy of a module.
bool is_of_adapter(std::string_view parameter);

/// Freezes everything but the adapters.
void train_adapters_alone(Model& model);
/// Makes the base float32. Error: a base in four bits.
Errors widen_base(const Workload& workload, Model& model);

/// Sets the initial elements of adapters: A is drawn, B is zero, so that the first step is that of the base model.
void start_adapters(Model& model);

/// The name without the part that PEFT inserts: "q_proj.weight" for "q_proj.base_layer.weight".
std::string name_before_adapters(std::string_view parameter);

/// "LoRA r=16 on all linear layers: 41.9 M of 8072.2 M parameters are trained. The frozen base stays in bfloat16: ..."
std::string note_of_adapters(const LoraOptions& lora, const Model& model);

}  // namespace fsdp
