// Element i of the numbers called k is a hash of (seed, k, i): SplitMix64's output function over a counter. Its upper
// 24 bits are an exact fp32 number u of [0, 1); a value is (u * 2 - 1) * a, rounded once per operation, so that another
// program finds the same bits (python/fsdp_plan_runner/synthetic.py).
//
// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.

#include "executor/training/synthetic.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
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

// Of evenly spread numbers with a standard deviation of 0.02, the initializer_range of most published configurations.
const double kInitialSpread = 0.02 * std::sqrt(3.0);
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

// In pieces, so that no second tensor of the size is needed.
void fill_spread(const at::Tensor& out, float a, std::uint64_t start, std::int64_t first) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 16;
  const at::Tensor flat = out.view({-1});
  std::vector<float> piece(static_cast<std::size_t>(std::min(kPiece, flat.numel())));
  for (std::int64_t done = 0; done < flat.numel(); done += kPiece) {
    const std::int64_t count = std::min(kPiece, flat.numel() - done);
    for (std::int64_t i = 0; i < count; ++i) {
      piece[i] = (unit_float(number_at(start, first + done + i)) * 2.0F - 1.0F) * a;
    }
    flat.narrow(0, done, count).copy_(at::from_blob(piece.data(), {count}, c10::kFloat));
  }
}

// ---- What inputs may be: each integer input is followed through views to the ops that read it.

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
    if (op.kind != OpKind::CrossEntropy) ++other_readers_;
    switch (op.kind) {
      case OpKind::Embedding:
        limit(block.parameters[op.parameters[0]].front());
        break;
      case OpKind::CrossEntropy:
        if (input == 1) limit(shape(0).back());
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

ParameterStart start_in(const Op& op, std::size_t index) {
  const bool is_norm = op.kind == OpKind::RmsNorm || op.kind == OpKind::LayerNorm || op.kind == OpKind::GroupNorm ||
                       op.kind == OpKind::BatchNorm;
  if (is_norm && index == 0) return {0, op.attributes.unit_offset ? 0.0 : 1.0};
  const bool has_bias = is_norm || op.kind == OpKind::Linear || op.kind == OpKind::Conv1d || op.kind == OpKind::Conv2d;
  if (has_bias && index == 1) return {0, 0};
  return {kInitialSpread, 0};
}

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

std::vector<ParameterStart> parameter_starts(const Model& model) {
  std::vector<std::optional<ParameterStart>> found(model.parameters.size());
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      for (std::size_t i = 0; i < op.parameters.size(); ++i) {
        auto& start = found[call.parameters[op.parameters[i]]];
        if (!start) start = start_in(op, i);
      }
    }
  }
  std::vector<ParameterStart> starts;
  for (const auto& start : found) starts.push_back(start.value_or(ParameterStart{kInitialSpread, 0}));
  return starts;
}

void fill_parameter(const at::Tensor& out, std::uint64_t seed, const std::string& name, const ParameterStart& start,
                    std::int64_t first) {
  if (start.spread == 0) {
    out.fill_(start.constant);
    return;
  }
  fill_spread(out, static_cast<float>(start.spread), start_of(seed, name, 0), first);
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
