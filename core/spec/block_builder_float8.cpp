// The linear layers that torchao's convert_to_float8_training replaces by Float8Linear: instances of torch.nn.Linear
// whose sizes 16 divides and that its filter takes. GPT-2's Conv1D and routers are other classes.
//
// Source: torchao 0.18.0, float8/float8_linear_utils.py (swap_linear_layers).

#include <fmt/format.h>

#include <algorithm>

#include "core/spec/block_builder.h"

namespace fsdp {

void BlockBuilder::use_float8(const Float8Training& float8, std::vector<std::string> bases) {
  float8_ = &float8;
  float8_bases_ = std::move(bases);
  found_skipped_.assign(float8.skip.size(), false);
}

bool BlockBuilder::multiplies_in_float8(std::string_view module, std::int64_t in, std::int64_t out,
                                        const LinearOptions& options) {
  if (float8_ == nullptr || options.class_name != "Linear" || options.transposed_weight) return false;
  const std::string inside = full_name(module);
  std::int64_t converted = 0;
  for (const std::string& base : float8_bases_) {
    const std::string name = base.empty() || inside.empty() ? base + inside : fmt::format("{}.{}", base, inside);
    for (std::size_t s = 0; s < float8_->skip.size(); ++s) {
      if (name.find(float8_->skip[s]) != std::string::npos) found_skipped_[s] = true;
    }
    if (is_converted(*float8_, name, options.is_output_head, out, in)) ++converted;
  }
  if (converted == 0) return false;
  if (converted < static_cast<std::int64_t>(float8_bases_.size())) {
    fail(fmt::format("--fp8 converts \"{}\" in {} of {} blocks, and blocks that differ so are not predicted.", inside,
                     converted, float8_bases_.size()),
         "Name layers in skip= that all blocks have.");
  }
  ++num_converted_;
  return true;
}

}  // namespace fsdp
