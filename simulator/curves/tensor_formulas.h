#pragma once

// The arithmetic of a tensor's size, for people who wonder why it is so large.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "core/model/model.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// The formula for the `bytes` of tensor `id`: "2 x 512 x 2048 x 2 B (bfloat16)", "ceil(11008 / 4) x 4096 x 4 B
/// (float32)". Its value is always `bytes`. Empty if no known formula gives them.
std::string tensor_formula(const PreparedPlan& prepared, int id, std::int64_t bytes);

/// The formulas of many tensors of one plan. Computes the formula of equal tensors once: a model may have thousands of
/// experts.
class TensorFormulas {
 public:
  explicit TensorFormulas(const PreparedPlan& prepared) : prepared_(prepared) {}
  const std::string& of(int id, std::int64_t bytes);

 private:
  /// The key: kind of tensor, unit or op, dtype, shape, bytes.
  using Key = std::tuple<int, int, int, Shape, std::int64_t>;
  Key key_of(int id, std::int64_t bytes) const;

  const PreparedPlan& prepared_;
  std::map<Key, std::string> known_;
};

}  // namespace fsdp::simulator
