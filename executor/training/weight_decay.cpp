// The op that reads a parameter decides its kind, not its name; for the published models both agree.
//
// Sources: transformers/trainer.py (get_decay_parameter_names: weights of norms and all that is called bias are left
// out).

#include "executor/training/weight_decay.h"

namespace fsdp::executor {

namespace {

bool is_norm(OpKind kind) {
  return kind == OpKind::RmsNorm || kind == OpKind::LayerNorm || kind == OpKind::GroupNorm || kind == OpKind::BatchNorm;
}

bool has_bias(OpKind kind) {
  return kind == OpKind::Linear || kind == OpKind::Conv1d || kind == OpKind::Conv2d;
}

}  // namespace

std::vector<bool> decayed_parameters(const Model& model, const Hyperparameters& settings) {
  std::vector<bool> decayed(model.parameters.size(), true);
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      for (std::size_t i = 0; i < op.parameters.size(); ++i) {
        const bool is_left_out =
            (is_norm(op.kind) && !settings.decays_norms) || (has_bias(op.kind) && i == 1 && !settings.decays_biases);
        const int parameter = call.parameters[op.parameters[i]];
        if (is_left_out) decayed[parameter] = false;
      }
    }
  }
  return decayed;
}

}  // namespace fsdp::executor
