#pragma once

// The values of a spec's dimensions for one workload, and of the expressions over them.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/spec/block_kinds.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// 2^53. A double represents every integer up to it.
inline constexpr std::int64_t kLargestInteger = 9007199254740992;

class DimensionValues {
 public:
  /// Applies the defaults of the spec, then those of the recipe, then the workload's values. Adds problems to `errors`:
  /// unknown names, values that are not positive numbers, and dimensions that are defined by each other in a circle.
  DimensionValues(const ModelSpec& spec, const Recipe& recipe, const Workload& workload, Errors& errors);

  /// In the order of the spec.
  const std::vector<Dimension>& values() const { return values_; }
  bool has(std::string_view name) const;

  /// The value of a number in the spec. Error: it is not finite.
  Result<double> number(const SpecNumber& number) const;
  /// An integer of at least `min` and at most 2^53. Error: it is not.
  Result<std::int64_t> integer(const SpecNumber& number, std::int64_t min) const;

  /// Evaluates options by their rules. Adds problems to `errors` and leaves out options with problems.
  std::vector<BlockOptions::Evaluated> options(const std::vector<SpecOption>& options,
                                               std::span<const OptionRule> rules, Errors& errors) const;

 private:
  Result<double> resolve(const std::string& name, std::map<std::string, int>& state);

  std::map<std::string, SpecNumber, std::less<>> written_;
  std::map<std::string, double, std::less<>> known_;
  std::vector<Dimension> values_;
};

}  // namespace fsdp
