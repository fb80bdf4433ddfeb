#pragma once

// Numbers in place of weights and data, of the right shapes and ranges, from a seed. They do not depend on the number
// of ranks, or on which rank computes which part.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model.h"

namespace fsdp::executor {

/// Values that an input of the model may have.
struct InputRange {
  enum class Kind : std::uint8_t {
    Normal,     ///< Floating point, spread over [-1, 1).
    Below,      ///< Integers in [0, below): ids, labels, indices.
    Positions,  ///< 0, 1, 2, ... along the last dimension.
    True,       ///< A mask that hides nothing.
  };
  Kind kind = Kind::Normal;
  std::int64_t below = 0;
  bool is_label = false;  ///< For `Below`: only cross entropies read it, which ignore -100.
};

/// For each input of `Model::inputs`: the values that all ops that read it accept.
std::vector<InputRange> input_ranges(const Model& model);

/// Fills a contiguous tensor with the elements [first, first + numel) of a parameter's initial values
/// (`Parameter::initial`), from a seed.
void fill_parameter(const at::Tensor& out, std::uint64_t seed, const Parameter& parameter, std::int64_t first);

/// Number i of the sequence of a seed, a name and a stream.
std::uint64_t drawn_number(std::uint64_t seed, const std::string& name, std::uint64_t stream, std::int64_t i);

/// The tensor of one input for one micro-batch. `stream` distinguishes ranks, steps and micro-batches.
at::Tensor make_input(const Value& value, const InputRange& range, c10::ScalarType dtype, c10::Device device,
                      std::uint64_t seed, std::uint64_t stream);

}  // namespace fsdp::executor
