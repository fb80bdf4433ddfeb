#include "core/spec/spec_entry.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/model/op_table.h"

namespace fsdp {

SpecEntry evaluate_entry(const SpecModule& module, const DimensionValues& dimensions, Errors& errors) {
  SpecEntry entry{.spec = &module, .kind = find_block_kind(module.block), .options = {}, .op_options = {}};
  if (entry.kind == nullptr) {
    entry.options.emplace_back();
    for (const SpecOp& op : module.ops) {
      entry.op_options.push_back(dimensions.options(op.attributes, op_row(op.kind).attributes, errors));
    }
    return entry;
  }
  const EvaluatedOptions fixed = dimensions.options(module.options, entry.kind->options, errors);
  std::size_t num_variations = 1;
  for (const SpecVariation& variation : module.variations) {
    num_variations = std::max(num_variations, variation.values.size());
    if (variation.values.size() != module.variations.front().values.size()) {
      errors.push_back(
          Error{module.where,
                fmt::format("\"per_layer\" gives {} values of \"{}\" and {} of \"{}\".", variation.values.size(),
                            variation.name, module.variations.front().values.size(), module.variations.front().name),
                "All lists of one entry are equally long."});
    }
  }
  for (std::size_t v = 0; v < num_variations; ++v) {
    std::vector<SpecOption> varied;
    for (const SpecVariation& variation : module.variations) {
      varied.push_back(variation.values[v % variation.values.size()]);
    }
    EvaluatedOptions options = dimensions.options(varied, entry.kind->options, errors);
    options.insert(options.end(), fixed.begin(), fixed.end());
    entry.options.push_back(std::move(options));
  }
  return entry;
}

}  // namespace fsdp
