// Element i of sequence k is a hash of (seed, k, i): SplitMix64's output function over a counter. Every value is
// rounded once per operation, so that another program computes the same bits (python/fsdp_plan_runner/synthetic.py).
//
//   uniform    the upper 24 bits are an exact fp32 number u in [0, 1); the value is (u * 2 - 1) * a, with a = s sqrt(3)
//   normal     the sum n of the four 16-bit parts is an integer with mean 131070 and a variance of (65536^2 - 1) / 3;
//              the value is (n - 131070) * (s sqrt(3) / 65536), within 3.5 standard deviations s: a bell of integers,
//              because logarithms and cosines differ between libraries
//
// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.

#include "executor/training/synthetic.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// FNV-1a.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::uint64_t start_of(std::uint64_t seed, std::string_view name, std::uint64_t stream) {
  return mix(mix(seed + kGoldenGamma) ^ hash_of(name)) + stream * 0xd1342543de82ef95;
}

std::uint64_t number_at(std::uint64_t start, std::int64_t i) {
  return mix(start + (static_cast<std::uint64_t>(i) + 1) * kGoldenGamma);
}

float unit_float(std::uint64_t bits) {
  return static_cast<float>(bits >> 40) * 0x1p-24F;
}

float bell_number(std::uint64_t bits) {
  constexpr std::uint64_t kPart = 0xffff;
  constexpr std::int64_t kMean = 131070;
  const std::uint64_t sum = (bits & kPart) + (bits >> 16 & kPart) + (bits >> 32 & kPart) + (bits >> 48);
  return static_cast<float>(static_cast<std::int64_t>(sum) - kMean);
}

// In pieces, so that no second tensor of this size is needed.
template <class Function>
void fill_each(const at::Tensor& out, std::int64_t first, const Function& value_at) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 16;
  const at::Tensor flat = out.view({-1});
  std::vector<float> piece(static_cast<std::size_t>(std::min(kPiece, flat.numel())));
  for (std::int64_t done = 0; done < flat.numel(); done += kPiece) {
    const std::int64_t count = std::min(kPiece, flat.numel() - done);
    for (std::int64_t i = 0; i < count; ++i) piece[i] = value_at(first + done + i);
    flat.narrow(0, done, count).copy_(at::from_blob(piece.data(), {count}, c10::kFloat));
  }
}

void fill_spread(const at::Tensor& out, float a, std::uint64_t start, std::int64_t first) {
  fill_each(out, first, [&](std::int64_t i) { return (unit_float(number_at(start, i)) * 2.0F - 1.0F) * a; });
}

void fill_bell(const at::Tensor& out, double std, std::uint64_t start, std::int64_t first) {
  const auto a = static_cast<float>(std * std::sqrt(3.0) / 65536.0);
  fill_each(out, first, [&](std::int64_t i) { return bell_number(number_at(start, i)) * a; });
}

// With the calls of the published code, so that the bits are equal (`sinusoids` of modeling_whisper.py).
at::Tensor sinusoids(const Shape& shape) {
  constexpr double kLongest = 10000;
  const std::int64_t half = shape[1] / 2;
  const double step = std::log(kLongest) / static_cast<double>(half - 1);
  const at::Tensor scales = at::exp(at::arange(half, c10::kFloat).mul(-step));
  const at::Tensor angles = at::arange(shape[0], c10::kFloat).view({-1, 1}).mul(scales.view({1, -1}));
  return at::cat({angles.sin(), angles.cos()}, 1);
}

// The part of a row that lies in [first, first + numel).
void clear_row(const at::Tensor& out, const Shape& shape, std::int64_t row, std::int64_t first) {
  const std::int64_t width = num_elements(shape) / shape.front();
  const std::int64_t from = std::clamp<std::int64_t>(row * width - first, 0, out.numel());
  const std::int64_t to = std::clamp<std::int64_t>((row + 1) * width - first, 0, out.numel());
  out.view({-1}).narrow(0, from, to - from).zero_();
}

// ---- Values of inputs: each integer input is followed through views to the ops that read it.

bool is_passed_on_by(OpKind kind) {
  switch (kind) {
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Slice:
    case OpKind::Select:
    case OpKind::Expand:
    case OpKind::Split:
    case OpKind::Contiguous:
    case OpKind::Cat:
    case OpKind::Stack:
    case OpKind::Detach:
      return true;
    default:
      return false;
  }
}

class RangeFinder {
 public:
  explicit RangeFinder(const Model& model) : model_(model) {}

  InputRange of(int value) {
    bound_ = std::numeric_limits<std::int64_t>::max();
    positions_ = false;
    targets_ = 0;
    other_readers_ = 0;
    follow_value(value);
    if (positions_) return {InputRange::Kind::Positions, 0, false};
    const bool is_known = bound_ != std::numeric_limits<std::int64_t>::max();
    return {InputRange::Kind::Below, is_known ? bound_ : 2, targets_ > 0 && other_readers_ == 0};
  }

 private:
  void follow_value(int value) {
    for (const Call& call : model_.calls) {
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        if (call.inputs[i] == value) follow_inside(call, static_cast<int>(i));
      }
    }
  }

  void follow_inside(const Call& call, int inside) {
    const Block& block = model_.blocks[call.block];
    for (const Op& op : block.ops) {
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i] == inside) read_by(call, block, op, i);
      }
    }
    for (std::size_t o = 0; o < block.outputs.size(); ++o) {
      if (block.outputs[o] == inside) follow_value(call.outputs[o]);
    }
  }

  void read_by(const Call& call, const Block& block, const Op& op, std::size_t input) {
    const auto shape = [&](std::size_t i) -> const Shape& { return block.values[op.inputs[i]].shape; };
    if (is_passed_on_by(op.kind)) {
      for (const int output : op.outputs) follow_inside(call, output);
      return;
    }
    const bool is_loss = op.kind == OpKind::CrossEntropy || op.kind == OpKind::LinearCrossEntropy;
    if (!is_loss) ++other_readers_;
    switch (op.kind) {
      case OpKind::Embedding:
        limit(block.parameters[op.parameters[0]].front());
        break;
      case OpKind::CrossEntropy:
      case OpKind::LinearCrossEntropy:
        if (input == 1) limit(op.parameters.empty() ? shape(0).back() : block.parameters[op.parameters[0]].front());
        ++(input == 1 ? targets_ : other_readers_);
        break;
      case OpKind::Index:
        if (input == 1) {
          const std::int64_t rank = static_cast<std::int64_t>(shape(0).size());
          limit(shape(0)[(op.attributes.dim + rank) % rank]);
        }
        break;
      case OpKind::RotaryTable:
        positions_ = true;
        break;
      default:
        break;
    }
  }

  void limit(std::int64_t below) { bound_ = std::min(bound_, below); }

  const Model& model_;
  std::int64_t bound_ = 0;
  bool positions_ = false;
  int targets_ = 0;
  int other_readers_ = 0;
};

}  // namespace

std::vector<InputRange> input_ranges(const Model& model) {
  std::vector<InputRange> ranges;
  RangeFinder finder(model);
  for (const int input : model.inputs) {
    const Value& value = model.values[input];
    if (!value.dtype || is_floating_point(*value.dtype)) {
      ranges.push_back({InputRange::Kind::Normal, 0, false});
    } else if (value.dtype == Dtype::Bool) {
      ranges.push_back({InputRange::Kind::True, 0, false});
    } else {
      ranges.push_back(finder.of(input));
    }
  }
  return ranges;
}

void fill_parameter(const at::Tensor& out, std::uint64_t seed, const Parameter& parameter, std::int64_t first) {
  const InitialValues& initial = parameter.initial;
  switch (initial.distribution) {
    case Distribution::Uniform:
      fill_spread(out, static_cast<float>(initial.std * std::sqrt(3.0)), start_of(seed, parameter.name, 0), first);
      break;
    case Distribution::Normal:
      fill_bell(out, initial.std, start_of(seed, parameter.name, 0), first);
      break;
    case Distribution::Constant:
      out.fill_(initial.value);
      break;
    case Distribution::Sinusoid:
      out.view({-1}).copy_(sinusoids(parameter.shape).view({-1}).narrow(0, first, out.numel()));
      break;
  }
  if (initial.zero_row >= 0) clear_row(out, parameter.shape, initial.zero_row, first);
}

std::uint64_t drawn_number(std::uint64_t seed, const std::string& name, std::uint64_t stream, std::int64_t i) {
  return number_at(start_of(seed, name, stream), i);
}

at::Tensor make_input(const Value& value, const InputRange& range, c10::ScalarType dtype, c10::Device device,
                      std::uint64_t seed, std::uint64_t stream) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  const std::int64_t count = num_elements(value.shape);
  switch (range.kind) {
    case InputRange::Kind::True:
      return at::ones(value.shape, options);
    case InputRange::Kind::Positions:
      return at::arange(value.shape.back(), options).expand(value.shape).contiguous();
    case InputRange::Kind::Normal: {
      at::Tensor out = at::empty(value.shape, options);
      fill_spread(out, 1.0F, start_of(seed, value.name, stream), 0);
      return out;
    }
    case InputRange::Kind::Below:
      break;
  }
  at::Tensor out = at::empty(value.shape, options.dtype(c10::kLong));
  auto* const numbers = out.mutable_data_ptr<std::int64_t>();
  const std::uint64_t start = start_of(seed, value.name, stream);
  for (std::int64_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<std::int64_t>((number_at(start, i) >> 16) % static_cast<std::uint64_t>(range.below));
  }
  return out.to(dtype);
}

}  // namespace fsdp::executor
