// The functions of the builder that write one op each.

#include <fmt/format.h>

#include "core/spec/block_builder.h"

namespace fsdp {

namespace {

// The default of transformers and PyTorch.
constexpr double kRmsNormEps = 1e-6;

/// Qwen3 keeps transformers' norm (nemo-automodel 0.7.0, components/models/qwen3/model.py).
bool is_norm_of_automodel(std::string_view class_name) {
  return class_name == "LlamaRMSNorm" || class_name == "Qwen2RMSNorm";
}

constexpr double kNormEps = 1e-5;

}  // namespace

// ---- Layers

BlockValue BlockBuilder::linear(std::string_view module, BlockValue x, std::int64_t out_features,
                                const LinearOptions& options) {
  if (is_saved(module)) {
    const auto scope = enter(module, "ModulesToSaveWrapper");
    declare_saved(options.class_name);
    if (is_packed(options)) {
      fail(fmt::format("\"{}\" is quantized, and a copy of packed weights cannot be trained.", full_name(module)),
           "Name the head or the embedding in modules_to_save, which are not quantized.");
    }
    const std::int64_t in = size(x, -1);
    parameter_of("original_module", options.weight_name,
                 options.transposed_weight ? Shape{in, out_features} : Shape{out_features, in});
    if (options.bias) parameter_of("original_module", options.bias_name, {out_features});
    return plain_linear("modules_to_save.default", x, out_features, options);
  }
  if (lora_ == nullptr || !is_adapted(module, options.is_output_head)) {
    return base_linear(module, x, out_features, options);
  }
  return adapted_linear(module, x, out_features, options);
}

BlockValue BlockBuilder::plain_linear(std::string_view module, BlockValue x, std::int64_t out_features,
                                      const LinearOptions& options) {
  const std::int64_t in = size(x, -1);
  const bool is_float8 = multiplies_in_float8(module, in, out_features, options);
  make_module(module, options.class_name, true);
  const Shape weight = options.transposed_weight ? Shape{in, out_features} : Shape{out_features, in};
  std::vector<int> parameters = {parameter_of(module, options.weight_name, weight)};
  if (options.bias) parameters.push_back(parameter_of(module, options.bias_name, {out_features}));
  OpAttributes attributes{.transposed_weight = options.transposed_weight};
  if (is_float8) {
    attributes.float8 = float8_->recipe;
    attributes.gathered_in_float8 = float8_->all_gather;
    definition_.parameters[parameters.front()].gathered_in_float8 = float8_->all_gather;
  }
  return op({.kind = OpKind::Linear,
             .module = module,
             .inputs = {x},
             .parameters = parameters,
             .attributes = std::move(attributes)})[0];
}

BlockValue BlockBuilder::embedding(std::string_view module, BlockValue ids, std::int64_t num_embeddings,
                                   std::int64_t width, const EmbeddingOptions& options) {
  if (!is_saved(module)) return plain_embedding(module, ids, num_embeddings, width, options);
  const auto scope = enter(module, "ModulesToSaveWrapper");
  declare_saved(options.class_name);
  parameter_of("original_module", "weight", {num_embeddings, width});
  return plain_embedding("modules_to_save.default", ids, num_embeddings, width, options);
}

BlockValue BlockBuilder::plain_embedding(std::string_view module, BlockValue ids, std::int64_t num_embeddings,
                                         std::int64_t width, const EmbeddingOptions& options) {
  if (options.padding_idx >= num_embeddings) {
    fail(fmt::format("padding_idx {} is out of range for {} rows.", options.padding_idx, num_embeddings));
  }
  refuse_adapters(module, "an embedding");
  make_module(module, options.class_name, true);
  const int weight = parameter_of(module, "weight", {num_embeddings, width}, options.fixed);
  const BlockValue embedded = op({.kind = OpKind::Embedding,
                                  .module = module,
                                  .inputs = {ids},
                                  .parameters = {weight},
                                  .attributes = {.padding_idx = options.padding_idx}})[0];
  if (lora_ != nullptr && lora_->input_grads) definition_.block.values[embedded.id].requires_grad = true;
  return embedded;
}

BlockValue BlockBuilder::norm(OpKind kind, std::string_view module, BlockValue x, std::int64_t width,
                              const NormOptions& options, OpAttributes attributes, std::string_view default_class) {
  make_module(module, options.class_name.empty() ? default_class : options.class_name, true);
  attributes.eps = options.eps;
  if (attributes.eps == 0) attributes.eps = kind == OpKind::RmsNorm ? kRmsNormEps : kNormEps;
  std::vector<int> parameters;
  if (options.affine) {
    parameters.push_back(parameter_of(module, "weight", {width}));
    if (options.bias && kind != OpKind::RmsNorm) parameters.push_back(parameter_of(module, "bias", {width}));
  }
  return op({.kind = kind, .module = module, .inputs = {x}, .parameters = parameters, .attributes = attributes})[0];
}

bool BlockBuilder::decodes_as_automodel(std::string_view family) const {
  return decodes_as_automodel_ && (family == "Llama" || family == "Qwen2" || family == "Qwen3");
}

BlockValue BlockBuilder::rms_norm(std::string_view module, BlockValue x, const NormOptions& options) {
  const std::string own = class_of(module);  // A norm that is a block of its own has the block's class.
  const std::string_view class_name = options.class_name.empty() ? std::string_view(own) : options.class_name;
  const LigerPatch patch = patch_of_norm_class(class_name, module);
  return norm(OpKind::RmsNorm, module, x, size(x, -1), options,
              {.one_op = decodes_as_automodel_ && is_norm_of_automodel(class_name),
               .unit_offset = options.unit_offset,
               .brief = options.brief,
               .wide_weight = options.wide_weight,
               .liger = patch != LigerPatch::None,
               .in_place = patch == LigerPatch::InPlace},
              "RMSNorm");
}

BlockValue BlockBuilder::layer_norm(std::string_view module, BlockValue x, const NormOptions& options) {
  NormOptions own = options;
  own.bias = options.bias && !options.wide_weight;
  return norm(OpKind::LayerNorm, module, x, size(x, -1), own,
              {.unit_offset = options.unit_offset, .wide_weight = options.wide_weight}, "LayerNorm");
}

BlockValue BlockBuilder::group_norm(std::string_view module, BlockValue x, std::int64_t groups,
                                    const NormOptions& options) {
  return norm(OpKind::GroupNorm, module, x, size(x, 1), options, {.groups = groups}, "GroupNorm");
}

BlockValue BlockBuilder::batch_norm(std::string_view module, BlockValue x, const NormOptions& options) {
  const std::int64_t channels = size(x, 1);
  const BlockValue y =
      norm(OpKind::BatchNorm, module, x, channels, options, {.momentum = options.momentum}, "BatchNorm2d");
  const std::string owner = full_name(module);
  for (const auto& known : definition_.buffers) {
    if (known.name == owner + ".running_mean") return y;
  }
  const auto scope = enter(module, "");
  buffer("running_mean", {channels}, Dtype::Float32, true);
  buffer("running_var", {channels}, Dtype::Float32, true);
  buffer("num_batches_tracked", {}, Dtype::Int64, true);
  return y;
}

BlockValue BlockBuilder::conv(OpKind kind, std::string_view module, BlockValue x, std::int64_t out_channels,
                              const ConvOptions& options, std::string_view default_class) {
  refuse_adapters(module, "a convolution");
  make_module(module, options.class_name.empty() ? default_class : options.class_name, true);
  const std::int64_t in = size(x, 1);
  if (options.groups < 1 || in % options.groups != 0) {
    fail(fmt::format("{} channels do not divide into {} groups.", in, options.groups));
  }
  Shape weight = {out_channels, options.groups < 1 ? in : in / options.groups, options.kernel};
  if (kind == OpKind::Conv2d) weight.push_back(options.kernel);
  std::vector<int> parameters = {parameter_of(module, "weight", weight)};
  if (options.bias) parameters.push_back(parameter_of(module, "bias", {out_channels}));
  return op({.kind = kind,
             .module = module,
             .inputs = {x},
             .parameters = parameters,
             .attributes = {.kernel = options.kernel,
                            .stride = options.stride,
                            .padding = options.padding,
                            .dilation = options.dilation,
                            .groups = options.groups}})[0];
}

BlockValue BlockBuilder::conv1d(std::string_view module, BlockValue x, std::int64_t out_channels,
                                const ConvOptions& options) {
  return conv(OpKind::Conv1d, module, x, out_channels, options, "Conv1d");
}

BlockValue BlockBuilder::conv2d(std::string_view module, BlockValue x, std::int64_t out_channels,
                                const ConvOptions& options) {
  return conv(OpKind::Conv2d, module, x, out_channels, options, "Conv2d");
}

BlockValue BlockBuilder::dropout(std::string_view module, BlockValue x, double probability) {
  if (!module.empty()) make_module(module, "Dropout", true);
  if (probability == 0) return x;
  return op({.kind = OpKind::Dropout, .module = module, .inputs = {x}, .attributes = {.probability = probability}})[0];
}

BlockValue BlockBuilder::activation(std::string_view module, OpKind kind, BlockValue x, std::string_view class_name) {
  if (!module.empty()) make_module(module, class_name, true);
  return op({.kind = kind, .module = module, .inputs = {x}})[0];
}

BlockValue BlockBuilder::parameter(std::string_view name, Shape shape, bool fixed) {
  const int parameter = parameter_of("", name, shape, fixed);
  return op({.kind = OpKind::Parameter, .parameters = {parameter}, .names = {std::string(name)}})[0];
}

void BlockBuilder::unused_parameter(std::string_view name, Shape shape) {
  parameter_of("", name, shape);
}

void BlockBuilder::buffer(std::string_view name, Shape shape, Dtype dtype, bool persistent) {
  const std::string owner = full_name("");
  definition_.buffers.push_back(Buffer{.name = owner.empty() ? std::string(name) : fmt::format("{}.{}", owner, name),
                                       .shape = std::move(shape),
                                       .dtype = dtype,
                                       .persistent = persistent});
}

// ---- Attention

BlockBuilder::CosSin BlockBuilder::rotary_table(BlockValue position_ids, std::int64_t head_dim,
                                                const RotaryFrequencies& frequencies, TableOptions options) {
  const auto table = op({.kind = OpKind::RotaryTable,
                         .inputs = {position_ids},
                         .attributes = {.head_dim = head_dim,
                                        .rotary = frequencies,
                                        .interleaved = options.interleaved,
                                        .by_halves = options.by_halves,
                                        .as_complex = options.complex,
                                        .from_cache = options.from_cache,
                                        .of_positions = options.of_positions,
                                        .wide = options.wide,
                                        .written_out = options.elementwise},
                         .names = {"cos", "sin"}});
  return {table[0], table[1]};
}

BlockBuilder::QueryKey BlockBuilder::rotary(BlockValue query, BlockValue key, CosSin table, RotaryOptions options) {
  const bool liger = patch_of(LigerKernel::Rope, options.family) != LigerPatch::None;
  const auto rotated = op({.kind = OpKind::Rotary,
                           .inputs = {query, key, table.cos, table.sin},
                           .attributes = {.heads = size(query, 2),
                                          .kv_heads = size(key, 2),
                                          .head_dim = size(query, 3),
                                          .partial_rotary = options.partial,
                                          .interleaved = options.interleaved,
                                          .by_halves = options.by_halves,
                                          .as_complex = options.complex,
                                          .in_float = options.in_float,
                                          .wide = options.wide,
                                          .liger = liger},
                           .names = {"query", "key"}});
  return {rotated[0], rotated[1]};
}

BlockValue BlockBuilder::attention(BlockValue query, BlockValue key, BlockValue value,
                                   const AttentionOptions& options) {
  std::vector<BlockValue> inputs = {query, key, value};
  if (options.bias.id >= 0) inputs.push_back(options.bias);
  std::vector<int> sinks;
  if (options.sinks >= 0) sinks.push_back(options.sinks);
  OpAttributes attributes = {.heads = size(query, 2),
                             .kv_heads = size(key, 2),
                             .head_dim = size(query, 3),
                             .causal = options.causal,
                             .window = options.window,
                             .softcap = options.softcap,
                             .score_scale = options.scale,
                             .probability = options.dropout};
  if (const std::vector<BlockValue> apart = documents_for(options, query, key, value); !apart.empty()) {
    inputs.insert(inputs.end(), apart.begin(), apart.end());
    attributes.packed = packed_;
    attributes.documents = documents_;
  }
  return op({.kind = OpKind::Attention, .inputs = inputs, .parameters = sinks, .attributes = attributes})[0];
}

// Kernels that take boundaries have an argument for a window, too.
std::vector<BlockValue> BlockBuilder::documents_for(const AttentionOptions& options, BlockValue query, BlockValue key,
                                                    BlockValue value) {
  if (packed_ == PackedAttention::None || !options.causal || options.bias.id >= 0) return {};
  if (options.softcap > 0 || options.sinks >= 0) return {};
  if (size(query, 1) != size(key, 1) || size(query, 3) != size(value, 3)) return {};
  if (packed_ == PackedAttention::Flex) {
    return options.window == 0 ? std::vector{input(kBlockMask)} : std::vector<BlockValue>{};
  }
  if (packed_ != PackedAttention::Sdpa) return {input(kBoundariesOfQueries), input(kBoundariesOfKeys)};
  const auto mask = optional_input(kDocumentMask);
  return mask && options.window == 0 ? std::vector{*mask} : std::vector<BlockValue>{};
}

// ---- Elementwise

BlockValue BlockBuilder::unary(OpKind kind, BlockValue x, const OpAttributes& attributes) {
  return op({.kind = kind, .inputs = {x}, .attributes = attributes})[0];
}

BlockValue BlockBuilder::binary(OpKind kind, BlockValue a, BlockValue b) {
  return op({.kind = kind, .inputs = {a, b}})[0];
}

BlockValue BlockBuilder::silu(BlockValue x) {
  return unary(OpKind::Silu, x);
}
BlockValue BlockBuilder::gelu(BlockValue x, bool approximate) {
  return unary(OpKind::Gelu, x, {.approximate = approximate});
}
BlockValue BlockBuilder::relu(BlockValue x) {
  return unary(OpKind::Relu, x);
}
BlockValue BlockBuilder::sigmoid(BlockValue x) {
  return unary(OpKind::Sigmoid, x);
}
BlockValue BlockBuilder::tanh(BlockValue x) {
  return unary(OpKind::Tanh, x);
}
BlockValue BlockBuilder::add(BlockValue a, BlockValue b) {
  return binary(OpKind::Add, a, b);
}
BlockValue BlockBuilder::sub(BlockValue a, BlockValue b) {
  return binary(OpKind::Sub, a, b);
}
BlockValue BlockBuilder::mul(BlockValue a, BlockValue b) {
  return binary(OpKind::Mul, a, b);
}
BlockValue BlockBuilder::scale(BlockValue x, double factor, bool rounded) {
  return unary(OpKind::Scale, x, {.scale = factor, .rounded = rounded});
}
BlockValue BlockBuilder::softcap(BlockValue x, double cap) {
  return unary(OpKind::Softcap, x, {.softcap = cap});
}
BlockValue BlockBuilder::cast(BlockValue x, Dtype dtype) {
  return unary(OpKind::Cast, x, {.dtype = dtype});
}
BlockValue BlockBuilder::cast_as_trained(BlockValue x, bool unless_autocast) {
  return unary(OpKind::Cast, x, {.as_trained = true, .unless_autocast = unless_autocast});
}
BlockValue BlockBuilder::detach(BlockValue x) {
  return unary(OpKind::Detach, x);
}

// ---- Shape

BlockValue BlockBuilder::reshape(BlockValue x, Shape shape) {
  return op({.kind = OpKind::Reshape, .inputs = {x}, .requested = std::move(shape)})[0];
}
BlockValue BlockBuilder::transpose(BlockValue x, std::int64_t dim, std::int64_t other_dim) {
  return unary(OpKind::Transpose, x, {.dim = dim, .other_dim = other_dim});
}
BlockValue BlockBuilder::slice(BlockValue x, std::int64_t dim, std::int64_t start, std::int64_t length) {
  return unary(OpKind::Slice, x, {.dim = dim, .start = start, .length = length});
}
BlockValue BlockBuilder::select(BlockValue x, std::int64_t dim, std::int64_t index) {
  return unary(OpKind::Select, x, {.dim = dim, .start = index});
}
BlockValue BlockBuilder::expand(BlockValue x, Shape shape) {
  return op({.kind = OpKind::Expand, .inputs = {x}, .requested = std::move(shape)})[0];
}
std::vector<BlockValue> BlockBuilder::split(BlockValue x, int parts, std::int64_t dim) {
  return op({.kind = OpKind::Split, .inputs = {x}, .attributes = {.dim = dim}, .num_outputs = parts});
}
std::array<BlockValue, 2> BlockBuilder::split_at(BlockValue x, std::int64_t length, std::int64_t dim) {
  const OpAttributes attributes = {.dim = dim, .length = length};
  const auto parts = op({.kind = OpKind::Split, .inputs = {x}, .attributes = attributes, .num_outputs = 2});
  return {parts[0], parts[1]};
}
std::array<BlockValue, 3> BlockBuilder::split_three(BlockValue x, std::int64_t length, std::int64_t dim) {
  const OpAttributes attributes = {.dim = dim, .length = length};
  const auto parts = op({.kind = OpKind::Split, .inputs = {x}, .attributes = attributes, .num_outputs = 3});
  return {parts[0], parts[1], parts[2]};
}
std::vector<BlockValue> BlockBuilder::split_by(BlockValue x, const std::vector<std::int64_t>& lengths,
                                               std::int64_t dim) {
  const OpAttributes attributes = {.dim = dim, .lengths = lengths};
  const int parts = static_cast<int>(lengths.size());
  return op({.kind = OpKind::Split, .inputs = {x}, .attributes = attributes, .num_outputs = parts});
}
BlockValue BlockBuilder::contiguous(BlockValue x) {
  return unary(OpKind::Contiguous, x);
}
BlockValue BlockBuilder::set_slice(BlockValue x, BlockValue part, std::int64_t dim, std::int64_t start) {
  return op({.kind = OpKind::SetSlice, .inputs = {x, part}, .attributes = {.dim = dim, .start = start}})[0];
}
BlockBuilder::KeyValue BlockBuilder::kv_cache(BlockValue key, BlockValue value) {
  const auto cached = op({.kind = OpKind::KvCache, .inputs = {key, value}, .num_outputs = 2});
  return {cached[0], cached[1]};
}
BlockValue BlockBuilder::cat(const std::vector<BlockValue>& parts, std::int64_t dim) {
  return op({.kind = OpKind::Cat, .inputs = parts, .attributes = {.dim = dim}})[0];
}
BlockValue BlockBuilder::stack(const std::vector<BlockValue>& parts, std::int64_t dim) {
  return op({.kind = OpKind::Stack, .inputs = parts, .attributes = {.dim = dim}})[0];
}
BlockValue BlockBuilder::index(BlockValue x, BlockValue indices, std::int64_t dim) {
  return op({.kind = OpKind::Index, .inputs = {x, indices}, .attributes = {.dim = dim}})[0];
}
BlockValue BlockBuilder::pad(BlockValue x, std::int64_t dim, std::int64_t length, bool reflect) {
  return unary(OpKind::Pad, x, {.reflect = reflect, .dim = dim, .length = length});
}

// ---- Reductions and ends

BlockValue BlockBuilder::softmax(BlockValue x, std::int64_t dim) {
  return unary(OpKind::Softmax, x, {.dim = dim});
}
BlockValue BlockBuilder::mean(BlockValue x, std::int64_t dim, bool keep_dim) {
  return unary(OpKind::Mean, x, {.keep_dim = keep_dim, .dim = dim});
}
BlockValue BlockBuilder::sum(BlockValue x, std::int64_t dim, bool keep_dim) {
  return unary(OpKind::Sum, x, {.keep_dim = keep_dim, .dim = dim});
}
BlockValue BlockBuilder::cross_entropy(BlockValue logits, BlockValue labels, bool shift) {
  return op({.kind = OpKind::CrossEntropy, .inputs = {logits, labels}, .attributes = {.shift = shift}})[0];
}
BlockValue BlockBuilder::constant(Shape shape, double value, std::optional<Dtype> dtype) {
  return filled(std::move(shape), dtype, {.value = value});
}
BlockValue BlockBuilder::positions(Shape shape, Dtype dtype) {
  return filled(std::move(shape), dtype, {.fill = ConstantFill::Positions});
}
BlockValue BlockBuilder::filled(Shape shape, std::optional<Dtype> dtype, OpAttributes fill) {
  fill.dtype = dtype;
  return op({.kind = OpKind::Constant, .attributes = fill, .requested = std::move(shape)})[0];
}

}  // namespace fsdp
