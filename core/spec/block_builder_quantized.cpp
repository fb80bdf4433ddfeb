// The linear layers that transformers replaces by bitsandbytes' Linear4bit: all but the output head (and what is tied
// to it). Norms, embeddings, convolutions and other classes, such as the router of a mixture, stay as they are.
//
// Sources: transformers/integrations/bitsandbytes.py (replace_with_bnb_linear), quantizers/base.py
// (get_keys_to_not_convert), 5.24.0; bitsandbytes/functional.py (quantize_4bit), 0.50.2. Not modeled:
// llm_int8_skip_modules, a bnb_4bit_compute_dtype other than that of the activations.

#include "core/base/rounding.h"
#include "core/spec/block_builder.h"

namespace fsdp {

void BlockBuilder::quantize(const Quantization& quantization, Dtype base) {
  quantization_ = &quantization;
  unpacked_ = base;
}

// type(module) is torch.nn.Linear, or transformers' Conv1D.
bool BlockBuilder::is_packed(const LinearOptions& options) const {
  return quantization_ != nullptr && !options.is_output_head && options.weight_name == "weight" &&
         (options.class_name == "Linear" || options.class_name == "Conv1D");
}

BlockValue BlockBuilder::base_linear(std::string_view module, BlockValue x, std::int64_t out_features,
                                     const LinearOptions& options) {
  return is_packed(options) ? packed_linear(module, x, out_features, options, false)
                            : plain_linear(module, x, out_features, options);
}

BlockValue BlockBuilder::packed_linear(std::string_view module, BlockValue x, std::int64_t out_features,
                                       const LinearOptions& options, bool cloned) {
  const std::int64_t numbers = size(x, -1) * out_features;
  const Dtype storage = storage_of(*quantization_, unpacked_);
  const auto scope = enter(module, "Linear4bit");
  std::vector<int> parameters = {parameter_of("", "weight", {packed_elements(numbers, storage), 1})};
  definition_.parameters[parameters.front()].dtype = storage;
  definition_.parameters[parameters.front()].stands_for = numbers;
  if (options.bias) parameters.push_back(parameter_of("", options.bias_name, {out_features}));
  const auto held = [&](std::string_view name, const Shape& shape, Dtype dtype) {
    buffer(name, shape, dtype, false);
    definition_.buffers.back().registered = false;
  };
  const std::int64_t scales = div_up(numbers, kQuantizedBlock);
  held("absmax", {scales}, quantization_->is_double ? Dtype::UInt8 : Dtype::Float32);
  held("quant_map", {kQuantizedValues}, Dtype::Float32);
  if (quantization_->is_double) {
    held("nested_absmax", {div_up(scales, kNestedBlock)}, Dtype::Float32);
    held("nested_quant_map", {kNestedValues}, Dtype::Float32);
    held("nested_offset", {}, Dtype::Float32);
  }
  return op({.kind = OpKind::Linear4bit,
             .inputs = {x},
             .parameters = parameters,
             .attributes = {.dtype = unpacked_,
                            .out_features = out_features,
                            .nested = quantization_->is_double,
                            .cloned = cloned,
                            .fp4 = quantization_->kind == FourBits::Fp4}})[0];
}

}  // namespace fsdp
