// Frequencies, buckets and masks in PyTorch's own calls and in the order of the published code, so that the numbers are
// equal to the last bit: an angle is a position times a frequency, and a position may be a hundred thousand.
//
//   frequency i = 1 / theta^(2i / head_dim)
//   llama3      w = 2 pi / frequency; divided by `factor` if w > L / low, unchanged if w < L / high, and between these
//               (1 - s) frequency / factor + s frequency with s = (L / w - low) / (high - low)
//   linear      divided by `factor`
//   yarn        divided by `factor` times r plus itself times 1 - r; r rises from 0 to 1 between the dimensions of
//               beta_fast and beta_slow turns, d(t) = head_dim log(L / (2 pi t)) / (2 log theta)
//   T5 bucket   for the distance d >= 0: d while d < e = n / 2, else e + log(d / e) / log(max / e) (n - e), at most
//               n - 1; if the directions are distinguished, each has its own n / 2 buckets
//
// Sources: transformers 4.57 modeling_rope_utils.py (_compute_default_rope_parameters, _compute_llama3_parameters,
// _compute_yarn_parameters),
// models/t5/modeling_t5.py (_relative_position_bucket).

#include "executor/kernels/constants.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

at::TensorOptions on_host(c10::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).device(c10::kCPU);
}

at::Tensor scaled_for_longer(const at::Tensor& frequencies, const RotaryFrequencies& rotary) {
  const auto positions = static_cast<double>(rotary.original_positions);
  const double low = rotary.low_freq_factor, high = rotary.high_freq_factor;
  const at::Tensor waves = (2 * std::numbers::pi) / frequencies;
  const at::Tensor divided = at::where(waves > positions / low, frequencies / rotary.factor, frequencies);
  const at::Tensor share = (positions / waves - low) / (high - low);
  const at::Tensor between = (1 - share) * divided / rotary.factor + share * divided;
  const at::Tensor is_between = (waves >= positions / high) * (waves <= positions / low);
  return at::where(is_between, between, divided);
}

// Low dimensions as they are, high ones divided, and a ramp between.
at::Tensor ramped(const at::Tensor& frequencies, std::int64_t dim, const RotaryFrequencies& rotary) {
  const auto dimension_of = [&](double turns) {
    const double waves = static_cast<double>(rotary.original_positions) / (turns * 2 * std::numbers::pi);
    return static_cast<double>(dim) * std::log(waves) / (2 * std::log(rotary.theta));
  };
  double low = dimension_of(rotary.beta_fast), high = dimension_of(rotary.beta_slow);
  if (rotary.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp = at::clamp((at::arange(dim / 2, on_host(c10::kFloat)) - low) / (high - low), 0, 1);
  const at::Tensor kept = 1 - ramp;
  return frequencies / rotary.factor * (1 - kept) + frequencies * kept;
}

// [distances]: the bucket of each distance 0, 1, 2, ... in one direction.
at::Tensor buckets_of_distances(std::int64_t distances, std::int64_t num_buckets, std::int64_t max_distance) {
  const std::int64_t exact = num_buckets / 2;
  const at::Tensor distance = at::arange(distances, on_host(c10::kLong));
  const double range = std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const at::Tensor shared =
      exact + (at::log(distance.to(c10::kFloat) / exact) / range * (num_buckets - exact)).to(c10::kLong);
  return at::where(distance < exact, distance, shared.clamp_max(num_buckets - 1));
}

// For each of [queries, keys]: key - query, the memory position minus the query's own.
void fill_buckets(std::int64_t* out, const Shape& shape, const OpAttributes& a) {
  const std::int64_t queries = shape[0], keys = shape[1];
  const std::int64_t in_direction = a.bidirectional ? a.num_buckets / 2 : a.num_buckets;
  const at::Tensor table = buckets_of_distances(std::max(queries, keys), in_direction, a.max_distance);
  const auto* const bucket = table.const_data_ptr<std::int64_t>();
  for (std::int64_t q = 0; q < queries; ++q) {
    for (std::int64_t k = 0; k < keys; ++k) {
      const bool is_later = k > q;
      const std::int64_t distance = a.bidirectional || !is_later ? std::abs(k - q) : 0;
      out[q * keys + k] = bucket[distance] + (a.bidirectional && is_later ? in_direction : 0);
    }
  }
}

void fill_rows(std::int64_t* out, std::int64_t rows, std::int64_t in_row, const OpAttributes& a) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::fill_n(out + r * in_row, in_row, r / a.length * a.stride + a.start + r % a.length);
  }
}

// Integers that take some computing: made on the host, then copied.
at::Tensor computed(const OpAttributes& a, const Shape& shape, c10::ScalarType dtype, c10::Device device) {
  at::Tensor numbers = at::empty(shape, on_host(c10::kLong));
  auto* const out = numbers.mutable_data_ptr<std::int64_t>();
  if (a.fill == ConstantFill::RelativeBuckets) {
    fill_buckets(out, shape, a);
  } else {
    fill_rows(out, shape[0], num_elements(shape) / shape[0], a);
  }
  if (device.is_cpu() && dtype == c10::kLong) return numbers;
  return at::empty(shape, at::TensorOptions().dtype(dtype).device(device)).copy_(numbers);
}

const OpAttributes* rotary_table_of(const Model& model, std::string_view module) {
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      if (op.kind != OpKind::RotaryTable) continue;
      const int of = call.modules[op.module];
      if (of >= 0 && model.modules[of].name == module) return &op.attributes;
    }
  }
  return nullptr;
}

}  // namespace

double lowest_number(c10::ScalarType dtype) {
  if (dtype == c10::kHalf) return -65504.0;
  if (dtype == c10::kBFloat16) return -3.3895313892515355e38;
  if (dtype == c10::kDouble) return std::numeric_limits<double>::lowest();
  return std::numeric_limits<float>::lowest();
}

namespace {

at::Tensor window_mask(const OpAttributes& attributes, const Shape& shape, c10::ScalarType dtype) {
  const at::Tensor seen = at::ones(shape, on_host(c10::kBool)).tril_(0).triu_(1 - attributes.length);
  if (dtype == c10::kBool) return seen;
  return at::zeros(shape, on_host(dtype)).masked_fill_(seen.logical_not(), lowest_number(dtype));
}

at::Tensor chunk_mask(const OpAttributes& attributes, const Shape& shape) {
  const auto chunks = [&](std::int64_t tokens) {
    return at::floor_divide(at::arange(tokens, on_host(c10::kLong)), attributes.length);
  };
  const at::Tensor same = chunks(shape[shape.size() - 2]).unsqueeze(1).eq(chunks(shape.back()).unsqueeze(0));
  return at::ones(shape, on_host(c10::kBool)).tril_(0).logical_and_(same);
}

}  // namespace

at::Tensor make_constant(const OpAttributes& attributes, const Shape& shape, c10::ScalarType dtype,
                         c10::Device device) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  switch (attributes.fill) {
    case ConstantFill::Value:
      return attributes.value == 0 ? at::zeros(shape, options) : at::full(shape, attributes.value, options);
    case ConstantFill::Positions: {
      at::Tensor out = at::empty(shape, options);
      at::Tensor rows = out.view({-1, shape.back()});
      for (std::int64_t r = 0; r < rows.size(0); ++r) {
        at::Tensor row = rows.select(0, r);
        at::arange_out(row, 0, shape.back(), 1);
      }
      return out;
    }
    case ConstantFill::CausalMask:
      return at::full(shape, lowest_number(dtype), options).triu_(1);
    case ConstantFill::WindowMask:
      return window_mask(attributes, shape, dtype).to(device);
    case ConstantFill::ChunkMask:
      return chunk_mask(attributes, shape).to(device);
    case ConstantFill::DocumentMask:  // Only packed models have it, which check_executable refuses.
    case ConstantFill::RelativeBuckets:
    case ConstantFill::Rows:
      break;
  }
  return computed(attributes, shape, dtype, device);
}

at::Tensor rotary_frequencies(const OpAttributes& attributes) {
  const RotaryFrequencies& rotary = attributes.rotary;
  at::Tensor frequencies = at::arange(0, attributes.head_dim, 2, on_host(c10::kLong)).to(c10::kFloat);
  frequencies = frequencies / attributes.head_dim;
  frequencies = 1.0 / at::pow(rotary.theta, frequencies);
  switch (rotary.scaling) {
    case RotaryScaling::Llama3:
      return scaled_for_longer(frequencies, rotary);
    case RotaryScaling::Linear:
      return frequencies / rotary.factor;
    case RotaryScaling::Yarn:
      return ramped(frequencies, attributes.head_dim, rotary);
    case RotaryScaling::None:
      break;
  }
  return frequencies;
}

at::Tensor make_buffer(const Model& model, const Buffer& buffer) {
  const auto options = on_host(scalar_type(buffer.dtype));
  const std::size_t dot = buffer.name.rfind('.');
  const std::string_view name = buffer.name;
  const std::string_view last = dot == std::string::npos ? name : name.substr(dot + 1);
  if (last == "inv_freq") {
    const OpAttributes* table = rotary_table_of(model, dot == std::string::npos ? "" : name.substr(0, dot));
    if (table != nullptr) return rotary_frequencies(*table).to(options).reshape(buffer.shape);
  }
  if (last == "running_var") return at::ones(buffer.shape, options);
  return at::zeros(buffer.shape, options);
}

}  // namespace fsdp::executor
