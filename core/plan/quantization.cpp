#include "core/plan/quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/nearest.h"
#include "core/base/split.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, 2> kFourBitNames = {"nf4", "fp4"};
constexpr std::array<std::string_view, 4> kQuantizeWords = {"nf4", "fp4", "double", "uint8"};
constexpr std::string_view kQuantizeForm = "Write nf4 or fp4, or nf4,double for double quantization.";

std::optional<Error> read_word(std::string_view word, std::string_view where, Quantization& quantization) {
  if (word == "double") {
    quantization.is_double = true;
  } else if (word == "uint8") {
    quantization.is_stored_in_bytes = true;
  } else if (word == "int8" || word == "8bit") {
    return Error{std::string(where), "8-bit weights of bitsandbytes (Linear8bitLt) are not predicted.",
                 "FSDP cannot shard integers, and the layers keep their inputs through checkpointing. " +
                     std::string(kQuantizeForm)};
  } else {
    return Error{std::string(where), fmt::format("Unknown word \"{}\".", word), suggest_name(word, kQuantizeWords)};
  }
  return std::nullopt;
}

}  // namespace

Result<Quantization> parse_quantization(std::string_view text, std::string_view where) {
  Quantization quantization;
  Errors errors;
  int kinds = 0;
  for (const std::string_view word : split(text, ',')) {
    const auto kind = std::find(kFourBitNames.begin(), kFourBitNames.end(), word);
    if (kind != kFourBitNames.end()) {
      quantization.kind = static_cast<FourBits>(kind - kFourBitNames.begin());
      ++kinds;
    } else if (auto error = read_word(word, where, quantization)) {
      errors.push_back(*std::move(error));
    }
  }
  if (errors.empty() && kinds != 1) {
    errors.push_back({std::string(where),
                      fmt::format("\"{}\" names {} of numbers.", text, kinds == 0 ? "no kind" : "two kinds"),
                      std::string(kQuantizeForm)});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return quantization;
}

std::string to_text(const Quantization& quantization) {
  return fmt::format("{}{}{}", kFourBitNames[static_cast<std::size_t>(quantization.kind)],
                     quantization.is_double ? ",double" : "", quantization.is_stored_in_bytes ? ",uint8" : "");
}

std::string sentence_of(const Quantization& quantization) {
  return fmt::format("{} base{}", quantization.kind == FourBits::Nf4 ? "NF4" : "FP4",
                     quantization.is_double ? " with double quantization" : "");
}

Dtype storage_of(const Quantization& quantization, Dtype base) {
  if (quantization.is_stored_in_bytes) return Dtype::UInt8;
  return is_floating_point(base) && size_of(base) == size_of(Dtype::BFloat16) ? base : Dtype::BFloat16;
}

std::int64_t packed_elements(std::int64_t numbers, Dtype storage) {
  return (numbers + 1) / (2 * size_of(storage).count());
}

std::string python_of(const Quantization& quantization, Dtype base, Dtype compute) {
  return fmt::format(
      "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"{}\"{}, bnb_4bit_compute_dtype=torch.{}, "
      "bnb_4bit_quant_storage=torch.{})",
      kFourBitNames[static_cast<std::size_t>(quantization.kind)],
      quantization.is_double ? ", bnb_4bit_use_double_quant=True" : "", name_of(compute),
      name_of(storage_of(quantization, base)));
}

}  // namespace fsdp
