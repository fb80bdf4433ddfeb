// Sources: transformers/trainer.py (validate_quantization_for_training), 5.24.0; torch/nn/parameter.py;
// peft/utils/other.py (prepare_model_for_kbit_training), PEFT 0.21.2; trl/trainer/sft_trainer.py, 1.16.0.

#include "core/spec/quantized_base.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/parse_units.h"
#include "core/spec/adapters.h"

namespace fsdp {

namespace {

constexpr std::string_view kQuantizePlace = "--quantize";

}  // namespace

Error quantized_without_adapters() {
  return {std::string(kQuantizePlace), "A quantized base cannot be trained, and there are no adapters.",
          "Add --lora 16, for example: transformers' Trainer refuses purely quantized models, too."};
}

Errors check_quantized(const Model& model) {
  Errors errors;
  const auto is_packed = [](const Parameter& parameter) { return parameter.stands_for > 0; };
  if (std::none_of(model.parameters.begin(), model.parameters.end(), is_packed)) {
    errors.push_back({std::string(kQuantizePlace), fmt::format("{} has no linear layer that is quantized.", model.name),
                      "The output head stays as it is."});
  }
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      if (op.kind != OpKind::Linear4bit) continue;
      const auto trained = std::find_if(op.parameters.begin(), op.parameters.end(), [&](int parameter) {
        return model.parameters[call.parameters[parameter]].trainable;
      });
      if (trained == op.parameters.end()) continue;
      errors.push_back({std::string(kQuantizePlace),
                        fmt::format("\"{}\" belongs to a quantized layer, which cannot be trained.",
                                    model.parameters[call.parameters[*trained]].name),
                        "Train its adapters alone."});
      return errors;
    }
  }
  return errors;
}

QuantizedBytes bytes_of_quantized(const Model& model) {
  QuantizedBytes bytes;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.stands_for > 0) bytes.weights += num_elements(parameter.shape) * size_of(parameter.dtype);
  }
  for (const Buffer& buffer : model.buffers) {
    if (!buffer.registered) bytes.whole += num_elements(buffer.shape) * size_of(buffer.dtype);
  }
  return bytes;
}

std::string note_of_quantized(const Quantization& quantization, Dtype base, const Model& model) {
  const QuantizedBytes bytes = bytes_of_quantized(model);
  Bytes widened;
  for (const Parameter& parameter : model.parameters) {
    const bool is_cast = parameter.stands_for == 0 && !is_of_adapter(parameter.name) &&
                         size_of(parameter.dtype) == size_of(Dtype::BFloat16);
    if (is_cast) widened += num_elements(parameter.shape) * size_of(parameter.dtype);
  }
  return fmt::format(
      "{} (bitsandbytes {}): {} of weights in {} storage, and {} of scales that each GPU holds whole. Load it with "
      "bnb_4bit_compute_dtype {}, whose default is float32, and without prepare_model_for_kbit_training, which makes "
      "embeddings, head and norms float32: {} more before sharding.",
      sentence_of(quantization), kBitsandbytesVersion, format_bytes(bytes.weights),
      name_of(storage_of(quantization, base)), format_bytes(bytes.whole), name_of(storage_of({}, base)),
      format_bytes(widened));
}

}  // namespace fsdp
