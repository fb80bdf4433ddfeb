#include "core/spec/other_specs.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

namespace fsdp {

Result<void> build_other_models(const Workload& workload, Model& model) {
  Errors errors;
  for (const OtherSpec& other : workload.also) {
    if (other.spec == nullptr) continue;
    if (workload.padding_mask && !makes_padding_mask(*other.spec)) {
      errors.push_back({"--also", fmt::format("{} makes no mask of padding.", other.options.file),
                        "Leave --padding-mask out, or name a decoder."});
      continue;
    }
    Workload same{.padding_mask = workload.padding_mask,
                  .loss_after_root = workload.loss_after_root,
                  .float_logits = workload.float_logits,
                  .loss_takes_head = workload.loss_takes_head,
                  .loss_calls_head = workload.loss_calls_head};
    for (const std::string_view name : {"batch", "seq"}) {
      const Dimension* size = find_dimension(model.dimensions, name);
      if (size != nullptr && find_dimension(other.spec->dimensions, name) != nullptr) same.dimensions.push_back(*size);
    }
    Result<Model> built = build_model(*other.spec, same);
    if (built) {
      model.beside.push_back(*std::move(built));
      continue;
    }
    for (Error& error : built.error()) {
      errors.push_back({"--also", fmt::format("{}: {}", other.options.file, error.what), std::move(error.hint)});
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return {};
}

std::vector<OtherModel> options_of(const std::vector<OtherSpec>& also) {
  std::vector<OtherModel> options;
  options.reserve(also.size());
  for (const OtherSpec& other : also) options.push_back(other.options);
  return options;
}

}  // namespace fsdp
