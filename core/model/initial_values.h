#pragma once

// The initial elements of a parameter without a file, as in a model that is trained from its first step.

#include <cstdint>

#include "core/base/object_reader.h"

namespace fsdp {

enum class Distribution : std::uint8_t {
  Uniform,   ///< Uniform around zero.
  Normal,    ///< Gaussian around zero.
  Constant,  ///< All equal.
  Sinusoid,  ///< Sines, then cosines, of positions: rows of an embedding (core/spec/initial_values.cpp).
};

inline constexpr EnumName<Distribution> kDistributions[] = {{Distribution::Uniform, "uniform"},
                                                            {Distribution::Normal, "normal"},
                                                            {Distribution::Constant, "constant"},
                                                            {Distribution::Sinusoid, "sinusoid"}};
inline constexpr EnumTable<Distribution> kDistributionTable{"distribution", kDistributions};

struct InitialValues {
  Distribution distribution = Distribution::Uniform;
  double std = 0.02;           ///< Standard deviation of random values.
  double value = 0;            ///< For a constant.
  std::int64_t zero_row = -1;  ///< A row that starts as zeros; -1 if none.

  bool operator==(const InitialValues&) const = default;
};

}  // namespace fsdp
