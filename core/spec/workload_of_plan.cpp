// The workload that a plan's choices make of a model.

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/plan/loss_table.h"
#include "core/plan/plan.h"
#include "core/spec/block_kinds.h"
#include "core/spec/model_spec.h"

namespace fsdp {

bool makes_padding_mask(const ModelSpec& spec) {
  if (spec.captured != nullptr) return false;
  return std::any_of(spec.modules.begin(), spec.modules.end(), [](const SpecModule& module) {
    return std::any_of(std::begin(kPaddingMaskKinds), std::end(kPaddingMaskKinds),
                       [&](std::string_view kind) { return module.block == kind; });
  });
}

void apply_implementations(const Implementations& use, Workload& workload) {
  workload.padding_mask = use.padding_mask;
  workload.attends_without_masks = use.attention == AttentionBackend::FlashAttn;
  workload.titan_attention = use.titan_attention;
  workload.automodel_decoders = use.automodel_decoders;
  workload.lora_in_one_op = use.lora_in_one_op;
  workload.loss_after_root = use.loss_after_root;
  workload.float_logits = use.float_logits;
  workload.loss_takes_head = loss_row(use.loss).takes_head;
  workload.loss_calls_head = loss_row(use.loss).calls_head;
}

Workload workload_of(const Plan& plan) {
  Workload workload{.recipe = plan.recipe,
                    .dimensions = plan.dimensions,
                    .trainable = plan.trainable,
                    .frozen = plan.frozen,
                    .lora = plan.lora,
                    .packing = plan.packing,
                    .quantization = plan.quantization,
                    .liger = plan.liger,
                    .float8 = plan.float8};
  apply_implementations(plan.runtime.implementations, workload);
  return workload;
}

}  // namespace fsdp
