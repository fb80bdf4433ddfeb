#include "core/model/op_table.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace fsdp {

namespace {

using Rows = std::vector<OpRow>;
using enum OptionType;
namespace shape = op_shape_rules;

constinit const OptionRule kDim = {"dim", Integer, true, "The dimension; negative counts from the end."};
constinit const OptionRule kKeepDim = {"keep_dim", Flag, false, "Keeps the dimension with size 1."};
constinit const OptionRule kBias = {"bias", Flag, false, "Has a bias. Defaults to true."};
constinit const OptionRule kNormEpsAttribute = {"eps", Number, false, "Added to the variance. Defaults to 1e-5."};
constinit const OptionRule kShape = {"shape", Sizes, true, "The output's shape."};
constinit const OptionRule kStart = {"start", Count, false, "First index. Defaults to 0."};
constinit const OptionRule kKernel = {"kernel", Size, true, "Size of the kernel."};
constinit const OptionRule kStride = {"stride", Size, false, "Step of the kernel. Defaults to 1."};
constinit const OptionRule kPadding = {"padding", Count, false, "Padding on both sides. Defaults to 0."};
constinit const OptionRule kDilation = {"dilation", Size, false, "Distance of the kernel's elements. Defaults to 1."};
constinit const OptionRule kGroups = {"groups", Size, false, "Groups of channels. Defaults to 1."};
constinit const OptionRule kOutChannels = {"out_channels", Size, true, "Channels of the output."};

constexpr OpArity kTwo{.min_inputs = 2, .max_inputs = 2};
constexpr OpArity kMany{.max_inputs = kAnyNumber};
constexpr OpArity kNoInputs{.min_inputs = 0, .max_inputs = 0};
constexpr OpArity kLayer{.min_parameters = 1, .max_parameters = 2};
constexpr OpArity kNorm{.max_parameters = 2};

OptionRule dtype_rule(bool required) {
  return {"dtype",
          Text,
          required,
          "Element type.",
          {"float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"}};
}

Rows dense_layers() {
  const std::vector<OptionRule> conv = {kOutChannels, kKernel, kStride, kPadding, kDilation, kGroups, kBias};
  return {
      {.kind = OpKind::Linear,
       .name = "linear",
       .arity = kLayer,
       .shape = shape::linear,
       .attributes = {{"out_features", Size, true, "Width of the output."},
                      kBias,
                      {"transposed_weight", Flag, false, "Weight [in, out], as in GPT-2's Conv1D."}},
       .takes_one_dtype = true},
      {.kind = OpKind::Embedding,
       .name = "embedding",
       .arity = {.min_parameters = 1, .max_parameters = 1},
       .shape = shape::embedding,
       .attributes = {{"num_embeddings", Size, true, "Rows of the table."},
                      {"embedding_dim", Size, true, "Width of the table."},
                      {"padding_idx", Count, false, "The table row that gets no gradient. Defaults to no such row."}}},
      {.kind = OpKind::Conv1d,
       .name = "conv1d",
       .arity = kLayer,
       .shape = shape::conv1d,
       .attributes = conv,
       .takes_one_dtype = true},
      {.kind = OpKind::Conv2d,
       .name = "conv2d",
       .arity = kLayer,
       .shape = shape::conv2d,
       .attributes = conv,
       .takes_one_dtype = true},
      {.kind = OpKind::Parameter,
       .name = "parameter",
       .arity = {.min_inputs = 0, .max_inputs = 0, .min_parameters = 1, .max_parameters = 1},
       .shape = shape::parameter,
       .attributes = {{"parameter", Text, true, "Its name below the module."}, kShape},
       .saves_tensors = false},
      {.kind = OpKind::Linear4bit,
       .name = "linear_4bit",
       .arity = kLayer,
       .shape = shape::linear_4bit,
       .saves_tensors = false,
       .is_plain = false},
  };
}

Rows norms() {
  return {
      {.kind = OpKind::RmsNorm,
       .name = "rms_norm",
       .arity = {.max_parameters = 1},
       .shape = shape::norm,
       .attributes = {{"unit_offset", Flag, false, "Multiplies by 1 + weight (Gemma)."},
                      {"wide_weight", Flag, false, "Multiplies by the weight in fp32, and casts last (OLMo 2)."},
                      {"eps", Number, false, "Added to the mean square. Defaults to 1e-6."}}},
      {.kind = OpKind::LayerNorm,
       .name = "layer_norm",
       .arity = kNorm,
       .shape = shape::norm,
       .attributes = {kBias,
                      {"unit_offset", Flag, false, "Multiplies by 1 + weight (Nemotron)."},
                      {"wide_weight", Flag, false, "Written out in fp32, cast last, without a bias (Cohere)."},
                      kNormEpsAttribute},
       .takes_one_dtype = true},
      {.kind = OpKind::GroupNorm,
       .name = "group_norm",
       .arity = kNorm,
       .shape = shape::group_norm,
       .attributes = {{"groups", Size, true, "Groups of channels."}, kBias, kNormEpsAttribute},
       .takes_one_dtype = true},
      {.kind = OpKind::BatchNorm,
       .name = "batch_norm",
       .arity = kNorm,
       .shape = shape::batch_norm,
       .attributes = {kBias,
                      kNormEpsAttribute,
                      {"momentum", Number, false, "Momentum of the running statistics. Defaults to 0.1."}}},
  };
}

Rows attention() {
  return {
      {.kind = OpKind::RotaryTable,
       .name = "rotary_table",
       .arity = {.num_outputs = 2},
       .shape = shape::rotary_table,
       .attributes = {{"head_dim", Size, true, "Width of a head."},
                      {"rope_theta", Number, false, "Base of the frequencies. Defaults to 10000."}},
       .saves_tensors = false},
      {.kind = OpKind::Rotary,
       .name = "rotary",
       .arity = {.min_inputs = 4, .max_inputs = 4, .num_outputs = 2},
       .shape = shape::rotary},
      {.kind = OpKind::Attention,
       .name = "attention",
       .arity = {.min_inputs = 3, .max_inputs = 5, .max_parameters = 1},
       .shape = shape::attention,
       .attributes = {{"causal", Flag, false, "Tokens see only those before them. Defaults to false."},
                      {"window", Count, false, "Sliding window in tokens; 0: none."},
                      {"softcap", Number, false, "Cap on the scores; 0: none."},
                      {"score_scale", Number, false, "Factor of the scores. Defaults to 1 / sqrt(head_dim)."},
                      {"probability", Number, false, "Dropout on the weights; 0: none."}}},
  };
}

Rows linear_attention() {
  return {
      {.kind = OpKind::CausalConv1d,
       .name = "causal_conv1d",
       .arity = kLayer,
       .shape = shape::causal_conv1d,
       .takes_one_dtype = true,
       .is_plain = false},
      {.kind = OpKind::DecayRate,
       .name = "decay_rate",
       .arity = {.min_parameters = 2, .max_parameters = 2},
       .shape = shape::decay_rate,
       .is_plain = false},
      {.kind = OpKind::GatedDeltaRule,
       .name = "gated_delta_rule",
       .arity = {.min_inputs = 3, .max_inputs = 3},
       .shape = shape::gated_delta_rule,
       .is_plain = false},
      {.kind = OpKind::StateSpace,
       .name = "state_space",
       .arity = {.min_inputs = 2, .max_inputs = 2, .min_parameters = 3, .max_parameters = 3},
       .shape = shape::state_space,
       .is_plain = false},
      {.kind = OpKind::GatedRmsNorm,
       .name = "gated_rms_norm",
       .arity = {.min_inputs = 2, .max_inputs = 2, .min_parameters = 1, .max_parameters = 1},
       .shape = shape::gated_rms_norm,
       .is_plain = false},
  };
}

Rows elementwise() {
  return {
      {.kind = OpKind::Silu, .name = "silu"},
      {.kind = OpKind::Gelu, .name = "gelu", .attributes = {{"approximate", Flag, false, "By tanh."}}},
      {.kind = OpKind::Relu, .name = "relu"},
      {.kind = OpKind::Sigmoid, .name = "sigmoid"},
      {.kind = OpKind::Tanh, .name = "tanh"},
      {.kind = OpKind::Mul, .name = "mul", .arity = kTwo, .shape = shape::broadcast, .takes_scalars = true},
      {.kind = OpKind::Add,
       .name = "add",
       .arity = kTwo,
       .shape = shape::broadcast,
       .saves_tensors = false,
       .takes_scalars = true},
      {.kind = OpKind::Sub, .name = "sub", .arity = kTwo, .shape = shape::broadcast, .saves_tensors = false},
      {.kind = OpKind::Scale,
       .name = "scale",
       .attributes = {{"scale", Number, true, "The factor."}},
       .saves_tensors = false,
       .takes_scalars = true},
      {.kind = OpKind::Softcap, .name = "softcap", .attributes = {{"softcap", Number, true, "The cap."}}},
      {.kind = OpKind::LigerGlu, .name = "liger_glu", .arity = kTwo, .shape = shape::gated, .is_plain = false},
      {.kind = OpKind::LowRank,
       .name = "low_rank",
       .arity = {.min_inputs = 2, .max_inputs = 2, .min_parameters = 2, .max_parameters = 2},
       .takes_one_dtype = true,
       .is_plain = false},
      {.kind = OpKind::Dropout,
       .name = "dropout",
       .attributes = {{"probability", Number, true, "Share of elements that become 0."}}},
      {.kind = OpKind::Cast, .name = "cast", .attributes = {dtype_rule(true)}, .saves_tensors = false},
      {.kind = OpKind::Detach, .name = "detach", .saves_tensors = false, .takes_scalars = true},
  };
}

Rows views() {
  return {
      {.kind = OpKind::Reshape,
       .name = "reshape",
       .shape = shape::reshape,
       .attributes = {kShape},
       .saves_tensors = false},
      {.kind = OpKind::Transpose,
       .name = "transpose",
       .shape = shape::transpose,
       .attributes = {kDim, {"other_dim", Integer, true, "The dimension that it is swapped with."}},
       .saves_tensors = false},
      {.kind = OpKind::Slice,
       .name = "slice",
       .shape = shape::slice,
       .attributes = {kDim, kStart, {"length", Size, true, "Number of indices."}},
       .saves_tensors = false},
      {.kind = OpKind::Select,
       .name = "select",
       .shape = shape::select,
       .attributes = {kDim, {"start", Count, true, "The index."}},
       .saves_tensors = false},
      {.kind = OpKind::Expand,
       .name = "expand",
       .shape = shape::expand,
       .attributes = {kShape},
       .saves_tensors = false},
      {.kind = OpKind::Split,
       .name = "split",
       .shape = shape::split,
       .attributes = {kDim, {"parts", Size, true, "Number of equal parts."}},
       .saves_tensors = false},
  };
}

Rows copies() {
  return {
      {.kind = OpKind::Contiguous, .name = "contiguous", .saves_tensors = false},
      {.kind = OpKind::Cat,
       .name = "cat",
       .arity = kMany,
       .shape = shape::cat,
       .attributes = {kDim},
       .saves_tensors = false},
      {.kind = OpKind::Stack,
       .name = "stack",
       .arity = kMany,
       .shape = shape::stack,
       .attributes = {kDim},
       .saves_tensors = false,
       .takes_scalars = true},
      {.kind = OpKind::SetSlice,
       .name = "set_slice",
       .arity = kTwo,
       .shape = shape::set_slice,
       .attributes = {kDim, kStart},
       .saves_tensors = false},
      {.kind = OpKind::KvCache,
       .name = "kv_cache",
       .arity = {.min_inputs = 2, .max_inputs = 2, .num_outputs = 2},
       .shape = shape::kv_cache,
       .saves_tensors = false},
      {.kind = OpKind::Index, .name = "index", .arity = kTwo, .shape = shape::index, .attributes = {kDim}},
      {.kind = OpKind::Pad,
       .name = "pad",
       .shape = shape::pad,
       .attributes = {kDim, {"length", Size, true, "Size of the dimension afterwards."}},
       .saves_tensors = false},
  };
}

Rows reductions() {
  return {
      {.kind = OpKind::Softmax, .name = "softmax", .shape = shape::softmax, .attributes = {kDim}},
      {.kind = OpKind::Mean,
       .name = "mean",
       .shape = shape::reduction,
       .attributes = {kDim, kKeepDim},
       .saves_tensors = false},
      {.kind = OpKind::Sum,
       .name = "sum",
       .shape = shape::reduction,
       .attributes = {kDim, kKeepDim},
       .saves_tensors = false},
      {.kind = OpKind::Std,
       .name = "std",
       .arity = {.min_inputs = 2, .max_inputs = 3},
       .shape = shape::reduction,
       .attributes = {kDim, kKeepDim, {"eps", Number, false, "Floor below the root. Defaults to 1e-12."}}},
      {.kind = OpKind::MaxPool2d,
       .name = "max_pool2d",
       .shape = shape::max_pool2d,
       .attributes = {kKernel, kStride, kPadding, kDilation}},
      {.kind = OpKind::AdaptiveAvgPool2d,
       .name = "adaptive_avg_pool2d",
       .shape = shape::adaptive_avg_pool2d,
       .attributes = {{"length", Size, true, "Height and width of the output."}}},
  };
}

Rows experts_and_ends() {
  return {
      {.kind = OpKind::Router,
       .name = "router",
       .arity = {.max_parameters = 1, .num_outputs = 2},
       .shape = shape::router,
       .attributes = {{"experts_per_token", Size, true, "Experts that a token is sent to."},
                      {"norm_topk_prob", Flag, false,
                       "The weights of a token's experts are divided by their sum. Defaults to true."}}},
      {.kind = OpKind::Experts,
       .name = "experts",
       .arity = {.min_inputs = 3, .max_inputs = 3, .min_parameters = 3, .max_parameters = kAnyNumber},
       .shape = shape::experts,
       .takes_one_dtype = true,
       .is_plain = false},
      {.kind = OpKind::GroupedExperts,
       .name = "grouped_experts",
       .arity = {.min_inputs = 3, .max_inputs = 3, .min_parameters = 2, .max_parameters = 4},
       .shape = shape::grouped_experts,
       .takes_one_dtype = true,
       .is_plain = false},
      {.kind = OpKind::DenseExperts,
       .name = "dense_experts",
       .arity = {.min_inputs = 2, .max_inputs = 2, .min_parameters = 2, .max_parameters = 2, .num_outputs = 3},
       .shape = shape::dense_experts,
       .takes_one_dtype = true,
       .is_plain = false},
      {.kind = OpKind::CrossEntropy,
       .name = "cross_entropy",
       .arity = kTwo,
       .shape = shape::cross_entropy,
       .attributes = {{"shift", Flag, false, "Labels are the next tokens: shifted by one first."}}},
      {.kind = OpKind::LinearCrossEntropy,
       .name = "linear_cross_entropy",
       .arity = {.min_inputs = 2, .max_inputs = 2, .min_parameters = 1, .max_parameters = 2},
       .shape = shape::linear_cross_entropy,
       .takes_one_dtype = true,
       .is_plain = false},
      {.kind = OpKind::MseLoss, .name = "mse_loss", .arity = kTwo, .shape = shape::mse_loss},
      {.kind = OpKind::Constant,
       .name = "constant",
       .arity = kNoInputs,
       .shape = shape::requested,
       .attributes = {kShape,
                      dtype_rule(false),
                      {"fill",
                       Text,
                       false,
                       "The value everywhere, 0, 1, 2, ... along the last dimension, or the lowest number where a key "
                       "comes after its query. Defaults to value.",
                       {"value", "positions", "causal_mask"}},
                      {"value", Number, false, "The value of its elements. Defaults to 0."}},
       .saves_tensors = false},
      {.kind = OpKind::Recorded,
       .name = "recorded",
       .arity = {.min_inputs = 0, .max_inputs = kAnyNumber, .max_parameters = kAnyNumber},
       .shape = shape::requested,
       .takes_scalars = true,
       .is_plain = false},
  };
}

/// In the order of the enum.
const Rows& table() {
  static const Rows rows = [] {
    Rows all;
    for (Rows group : {dense_layers(), norms(), attention(), linear_attention(), elementwise(), views(), copies(),
                       reductions(), experts_and_ends()}) {
      std::move(group.begin(), group.end(), std::back_inserter(all));
    }
    assert(all.size() == static_cast<std::size_t>(kNumOpKinds));
    for ([[maybe_unused]] int i = 0; const OpRow& row : all) assert(row.kind == static_cast<OpKind>(i++));
    return all;
  }();
  return rows;
}

}  // namespace

const OpRow& op_row(OpKind kind) {
  return table()[static_cast<std::size_t>(kind)];
}

std::string_view name_of(OpKind kind) {
  return op_row(kind).name;
}

std::optional<OpKind> parse_op_kind(std::string_view text) {
  const auto found = std::find_if(table().begin(), table().end(), [&](const OpRow& row) { return row.name == text; });
  if (found == table().end()) return std::nullopt;
  return found->kind;
}

bool is_scan(OpKind kind) {
  return kind == OpKind::GatedDeltaRule || kind == OpKind::StateSpace;
}

bool is_of_experts(OpKind kind) {
  return kind == OpKind::Router || kind == OpKind::Experts || kind == OpKind::GroupedExperts ||
         kind == OpKind::DenseExperts;
}

bool takes_one_dtype(OpKind kind) {
  return op_row(kind).takes_one_dtype;
}

}  // namespace fsdp
