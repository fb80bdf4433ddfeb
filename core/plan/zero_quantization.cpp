// qwZ of ZeRO++ (zero_quantized_weights): each rank quantizes its part of what ZeRO-3 gathers to 8 bits, in groups of
// at most some thousands of elements with an fp32 scale each, and sends both.
//
//   groups   the smallest number from elements / 8000 on that divides elements / 8, doubled while a group has more than
//            8000 elements and its half is a multiple of 8
//
// A part whose size is no multiple of 8 ends DeepSpeed with an error. A padded parameter that is gathered alone is
// scaled in groups of another size than it was quantized in, in silence. Both are refused.
//
// Sources: deepspeed/runtime/zero/partition_parameters.py (CUDAQuantizer, _all_gather_sequential,
// _all_gather_coalesced), csrc/quantization/pt_binding.cpp, DeepSpeed 0.19.8.

#include "core/plan/zero_quantization.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/model/model.h"
#include "core/plan/runtime.h"

namespace fsdp {

namespace {

constexpr std::int64_t kTargetGroup = 8000;  // Elements.
constexpr std::int64_t kVector = 8;          // Elements that a thread reads at once.

}  // namespace

std::int64_t quantization_groups(std::int64_t elements) {
  const std::int64_t vectors = elements / kVector;
  std::int64_t groups = (elements + kTargetGroup - 1) / kTargetGroup;
  while (groups < vectors && vectors % groups != 0) ++groups;
  while (vectors % (2 * groups) == 0 && elements > kTargetGroup * groups) groups *= 2;
  return groups;
}

Errors check_quantized_weights(const Plan& plan, const Model& model) {
  Errors errors;
  if (!plan.zero.quantized_weights) return errors;
  const auto wrong = [&](std::string what, std::string hint) {
    errors.push_back({"zero/quantized_weights", std::move(what), std::move(hint)});
  };
  const std::int64_t ranks = plan.mesh.world_size();
  if (!is_zero3(plan)) {
    wrong("ZeRO-1 and 2 gather no parameters, and DeepSpeed does nothing here.", "Write false, or plan for ZeRO-3.");
  } else if (ranks == 1) {
    wrong("One GPU gathers nothing.", "Write false.");
  } else if (plan.zero.offload_param) {
    wrong("With offload_param DeepSpeed quantizes what comes from the host, which is not predicted.",
          "Leave one of them out.");
  } else {
    for (const Parameter& parameter : model.parameters) {
      const std::int64_t elements = num_elements(parameter.shape);
      if (elements % (kVector * ranks) == 0) continue;
      wrong(
          fmt::format("DeepSpeed quantizes {} elements at a time, and {} has {}, which are not {} equal parts of such.",
                      kVector, parameter.name, elements, ranks),
          "Write false, or take another number of GPUs.");
      break;
    }
  }
  return errors;
}

}  // namespace fsdp
