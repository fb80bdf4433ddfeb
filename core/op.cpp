#include "core/op.h"

#include <algorithm>

namespace fsdp {
namespace {

// In the order of the enum.
constexpr std::array<std::string_view, kNumOpKinds> kOpNames = {
    "linear",     "embedding",    "conv1d",        "conv2d",
    "parameter",  "rms_norm",     "layer_norm",    "group_norm",
    "batch_norm", "rotary_table", "rotary",        "attention",
    "silu",       "gelu",         "relu",          "sigmoid",
    "tanh",       "mul",          "add",           "sub",
    "scale",      "softcap",      "dropout",       "cast",
    "detach",     "reshape",      "transpose",     "slice",
    "select",     "expand",       "split",         "contiguous",
    "cat",        "stack",        "set_slice",     "kv_cache",
    "index",      "pad",          "softmax",       "mean",
    "sum",        "std",          "max_pool2d",    "adaptive_avg_pool2d",
    "router",     "experts",      "cross_entropy", "mse_loss",
    "constant",
};

static_assert(std::none_of(kOpNames.begin(), kOpNames.end(), [](std::string_view name) { return name.empty(); }),
              "every op kind has a name");

constexpr std::array<std::string_view, 2> kScalings = {"none", "llama3"};
constexpr std::array<std::string_view, 5> kFills = {"value", "positions", "causal_mask", "relative_buckets", "rows"};

template <class E, std::size_t N>
std::optional<E> parse(const std::array<std::string_view, N>& names, std::string_view text) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<E>(found - names.begin());
}

}  // namespace

std::string_view name_of(OpKind kind) {
  return kOpNames[static_cast<std::size_t>(kind)];
}

std::optional<OpKind> parse_op_kind(std::string_view text) {
  return parse<OpKind>(kOpNames, text);
}

bool takes_one_dtype(OpKind kind) {
  return kind == OpKind::Linear || kind == OpKind::Conv1d || kind == OpKind::Conv2d || kind == OpKind::Experts ||
         kind == OpKind::LayerNorm || kind == OpKind::GroupNorm;
}

std::string_view name_of(RotaryScaling scaling) {
  return kScalings[static_cast<std::size_t>(scaling)];
}

std::optional<RotaryScaling> parse_rotary_scaling(std::string_view text) {
  return parse<RotaryScaling>(kScalings, text);
}

std::string_view name_of(ConstantFill fill) {
  return kFills[static_cast<std::size_t>(fill)];
}

std::optional<ConstantFill> parse_constant_fill(std::string_view text) {
  return parse<ConstantFill>(kFills, text);
}

}  // namespace fsdp
