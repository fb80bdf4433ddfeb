#pragma once

// A model whose frozen base is quantized: its mistakes, and what a user must know about it.

#include <string>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/quantization.h"

namespace fsdp {

/// The error of a quantized base without adapters.
Error quantized_without_adapters();

/// What cannot be trained: packed weights, and the biases beside them; and a model without packed weights.
Errors check_quantized(const Model& model);

/// Bytes of packed weights, and of the scales and tables beside them.
struct QuantizedBytes {
  Bytes weights;
  Bytes whole;  ///< On each GPU, whatever the framework shards.
};
QuantizedBytes bytes_of_quantized(const Model& model);

/// The storage, what each GPU holds whole, the dtype of products, and what prepare_model_for_kbit_training would add.
/// `base`: the dtype of the weights that are not packed.
std::string note_of_quantized(const Quantization& quantization, Dtype base, const Model& model);

}  // namespace fsdp
