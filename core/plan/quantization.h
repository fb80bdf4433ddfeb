#pragma once

// The frozen base below adapters, stored in four bits by bitsandbytes (QLoRA). A linear layer W [out, in] becomes a
// Linear4bit:
//
//   weight             two numbers to a byte, in order: [out * in / (2 * size of the storage's dtype), 1]
//   absmax             the scale of each 64 numbers, float32; with double quantization a byte for each, and below it
//   nested_absmax      the scale of each 256 scales, float32
//   quant_map          the 16 values that four bits name, float32; nested_quant_map: the 256 of a byte
//   nested_offset      the mean of the scales, float32
//
// Only `weight` is a parameter, which a framework shards. All else is in a plain attribute, whole on each GPU: 0.5 bits
// a number, or 0.127 with double quantization.
//
// Sources: bitsandbytes 0.50.2, functional.py (quantize_4bit, quantize_blockwise, get_4bit_type, QuantState),
// nn/modules.py (Linear4bit, Params4bit), backends/cuda/ops.py; transformers 5.24.0,
// integrations/bitsandbytes.py (replace_with_bnb_linear), quantizers/base.py (get_keys_to_not_convert).

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/dtype.h"
#include "core/base/result.h"

namespace fsdp {

/// The releases whose layers are predicted.
inline constexpr std::string_view kBitsandbytesVersion = "0.50.2";

inline constexpr std::int64_t kQuantizedBlock = 64;   ///< Numbers that share a scale.
inline constexpr std::int64_t kNestedBlock = 256;     ///< Scales that share one, with double quantization.
inline constexpr std::int64_t kQuantizedValues = 16;  ///< Those that four bits name.
inline constexpr std::int64_t kNestedValues = 256;    ///< Those that a byte names.

/// The meaning of four bits.
enum class FourBits : std::uint8_t {
  Nf4,  ///< Quantiles of a normal distribution.
  Fp4,  ///< A sign, two bits of exponent and one of mantissa.
};

/// Arguments of transformers.BitsAndBytesConfig with load_in_4bit.
struct Quantization {
  FourBits kind = FourBits::Nf4;    ///< bnb_4bit_quant_type.
  bool is_double = false;           ///< bnb_4bit_use_double_quant: the scales are quantized, too.
  bool is_stored_in_bytes = false;  ///< bnb_4bit_quant_storage: uint8, the default there. Otherwise a 16-bit float,
                                    ///< which a framework can shard.

  bool operator==(const Quantization&) const = default;
};

/// "nf4" or "fp4", then in any order ",double" and ",uint8". Error, at `where`: every unknown word, with the nearest.
Result<Quantization> parse_quantization(std::string_view text, std::string_view where);

/// The text that parse_quantization reads as these.
std::string to_text(const Quantization& quantization);

/// "NF4 base", or "NF4 base with double quantization".
std::string sentence_of(const Quantization& quantization);

/// The dtype of the packed weights of a base that the checkpoint stores in `base`.
Dtype storage_of(const Quantization& quantization, Dtype base);

/// Elements of the packed weight of `numbers` numbers.
std::int64_t packed_elements(std::int64_t numbers, Dtype storage);

/// "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", ...)". `compute` is the dtype of the
/// activations, in which the layers multiply.
std::string python_of(const Quantization& quantization, Dtype base, Dtype compute);

}  // namespace fsdp
