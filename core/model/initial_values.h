#pragma once

// How the elements of a parameter begin where no file gives them: what a model trained from its first step has.

#include <cstdint>

#include "core/base/object_reader.h"

namespace fsdp {

enum class Distribution : std::uint8_t {
  Uniform,   ///< Evenly around zero.
  Normal,    ///< In the shape of a bell around zero.
  Constant,  ///< All alike.
  Sinusoid,  ///< Sines, then cosines, of positions: rows of an embedding (core/spec/initial_values.cpp).
};

inline constexpr EnumName<Distribution> kDistributions[] = {{Distribution::Uniform, "uniform"},
                                                            {Distribution::Normal, "normal"},
                                                            {Distribution::Constant, "constant"},
                                                            {Distribution::Sinusoid, "sinusoid"}};
inline constexpr EnumTable<Distribution> kDistributionTable{"distribution", kDistributions};

struct InitialValues {
  Distribution distribution = Distribution::Uniform;
  double std = 0.02;           ///< Standard deviation of what is drawn.
  double value = 0;            ///< For a constant.
  std::int64_t zero_row = -1;  ///< A row that begins as zeros; -1: none.

  bool operator==(const InitialValues&) const = default;
};

}  // namespace fsdp
