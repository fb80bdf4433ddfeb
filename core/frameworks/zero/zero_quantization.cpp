// Quantization of ZeRO++ beside ZeRO-3.
//
// qwZ (zero_quantized_weights): each rank quantizes its part of what is gathered to 8 bits, in groups of at most some
// thousands of elements with an fp32 scale each, and sends both.
//
//   groups   the smallest number from elements / 8000 on that divides elements / 8, doubled while a group has more than
//            8000 elements and its half is a multiple of 8
//
// A part whose size is no multiple of 8 ends DeepSpeed with an error. A padded parameter that is gathered alone is
// scaled in groups of another size than it was quantized in, in silence. Both are refused.
//
// qgZ (zero_quantized_gradients), over several nodes: each gradient of a bucket by itself. One of one dimension, or
// whose elements are no multiple of twice the ranks, is reduce-scattered. Any other is quantized to 4 bits, in as many
// groups as the larger of its first two dimensions; the GPUs of a node exchange parts and scales (all-to-all), add them
// up and quantize the sums; GPUs of the same place in each node exchange those, and add them up.
//
// The kernel takes the gradients for fp16, whatever they are, eight elements at a time, and gives each rank the same
// number of whole groups. Where that is not so, it takes wrong numbers and says nothing. That is refused.
//
// Sources: deepspeed/runtime/zero/partition_parameters.py (CUDAQuantizer, _all_gather_sequential,
// _all_gather_coalesced), runtime/comm/coalesced_collectives.py (all_to_all_quant_reduce), zero/stage3.py
// (__avg_scatter_grads), csrc/quantization/pt_binding.cpp, swizzled_quantize.cu, DeepSpeed 0.19.8.

#include "core/frameworks/zero/zero_quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/frameworks/zero/zero_partition.h"
#include "core/model/model.h"
#include "core/plan/framework_traits.h"
#include "core/plan/runtime.h"

namespace fsdp {

namespace {

constexpr std::int64_t kTargetGroup = 8000;  // Elements.
constexpr std::int64_t kVector = 8;          // Elements that a thread reads at once.

// 0: it is not quantized.
std::int64_t gradient_groups(const Shape& shape, std::int64_t ranks) {
  if (shape.size() < 2 || num_elements(shape) % (2 * ranks) != 0) return 0;
  return std::max({shape[0], shape[1], ranks});
}

bool are_groups_cut(const Parameter& parameter, std::int64_t ranks) {
  const std::int64_t groups = gradient_groups(parameter.shape, ranks);
  return groups > 0 && (groups % ranks != 0 || num_elements(parameter.shape) % (groups * kVector) != 0);
}

template <class Wrong>
void check_weights(const Plan& plan, const Model& model, const Wrong& wrong) {
  const std::int64_t ranks = plan.mesh.world_size();
  if (traits_of(plan).zero_stage < 3) {
    wrong("ZeRO-1 and 2 gather no parameters, and DeepSpeed ignores this.", "Write false, or plan for ZeRO-3.");
  } else if (ranks == 1) {
    wrong("One GPU does not gather.", "Write false.");
  } else if (plan.zero.offload_param) {
    wrong("With offload_param DeepSpeed quantizes data from the host, which is not predicted.",
          "Leave one of them out.");
  } else {
    const auto is_cut = [&](const Parameter& p) { return num_elements(p.shape) % (kVector * ranks) != 0; };
    const auto cut = std::find_if(model.parameters.begin(), model.parameters.end(), is_cut);
    if (cut == model.parameters.end()) return;
    wrong(fmt::format("DeepSpeed quantizes {} elements at a time, and the {} of {} are not {} equal parts of such.",
                      kVector, num_elements(cut->shape), cut->name, ranks),
          "Write false, or take another number of GPUs.");
  }
}

template <class Wrong>
void check_gradients(const Plan& plan, const Model& model, const Wrong& wrong) {
  const std::int64_t ranks = plan.mesh.world_size();
  if (traits_of(plan).zero_stage < 3) {
    wrong("ZeRO-1 and 2 reduce gradients as they are, and DeepSpeed ignores this.", "Write false, or plan for ZeRO-3.");
  } else if (zero_dtype(plan) != Dtype::Float16) {
    wrong("DeepSpeed's kernel reads any gradient as fp16, and would train on other numbers.",
          "Write false, or float16 for param_dtype and reduce_dtype.");
  } else if (plan.cpu_offload) {
    wrong("With offload_optimizer it is not predicted.", "Leave one of them out.");
  } else {
    const auto is_cut = [&](const Parameter& p) { return p.trainable && are_groups_cut(p, ranks); };
    const auto cut = std::find_if(model.parameters.begin(), model.parameters.end(), is_cut);
    if (cut == model.parameters.end()) return;
    wrong(fmt::format("DeepSpeed quantizes the gradient of {} in {} groups, of which {} GPUs do not get equally many "
                      "whole ones, and it would take wrong numbers.",
                      cut->name, gradient_groups(cut->shape, ranks), ranks),
          "Write false, or take another number of GPUs.");
  }
}

}  // namespace

std::int64_t quantization_groups(std::int64_t elements) {
  const std::int64_t vectors = elements / kVector;
  std::int64_t groups = (elements + kTargetGroup - 1) / kTargetGroup;
  while (groups < vectors && vectors % groups != 0) ++groups;
  while (vectors % (2 * groups) == 0 && elements > kTargetGroup * groups) groups *= 2;
  return groups;
}

bool exchanges_gradients(const Plan& plan, std::int64_t gpus_per_node) {
  return plan.zero.quantized_gradients && plan.mesh.world_size() / gpus_per_node > 1;
}

std::vector<GradientExchange> exchanges_of(const GradientBucket& bucket, const Layout& layout, const Model& model) {
  std::vector<GradientExchange> exchanges;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      if (std::find(bucket.parameters.begin(), bucket.parameters.end(), p.parameter) == bucket.parameters.end())
        continue;
      exchanges.push_back({p.parameter, padded_elements(p.parameter, layout, model),
                           gradient_groups(model.parameters[p.parameter].shape, layout.zero.ranks)});
    }
  }
  return exchanges;
}

Errors check_quantization(const Plan& plan, const Model& model) {
  Errors errors;
  const auto wrong_at = [&](const char* where) {
    return [&errors, where](std::string what, std::string hint) {
      errors.push_back({where, std::move(what), std::move(hint)});
    };
  };
  if (plan.zero.quantized_weights) check_weights(plan, model, wrong_at("zero/quantized_weights"));
  if (plan.zero.quantized_gradients) check_gradients(plan, model, wrong_at("zero/quantized_gradients"));
  return errors;
}

}  // namespace fsdp
