#include "core/model/op.h"

#include <algorithm>

namespace fsdp {
namespace {

constexpr std::array<std::string_view, 4> kScalings = {"none", "llama3", "linear", "yarn"};
constexpr std::array<std::string_view, 8> kFills = {"value",       "positions",  "causal_mask",   "relative_buckets",
                                                    "window_mask", "chunk_mask", "document_mask", "rows"};
constexpr std::array<std::string_view, 5> kPacked = {"none", "flash_attn", "varlen", "sdpa", "flex"};

template <class E, std::size_t N>
std::optional<E> parse(const std::array<std::string_view, N>& names, std::string_view text) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<E>(found - names.begin());
}

}  // namespace

std::string_view name_of(RotaryScaling scaling) {
  return kScalings[static_cast<std::size_t>(scaling)];
}

std::optional<RotaryScaling> parse_rotary_scaling(std::string_view text) {
  return parse<RotaryScaling>(kScalings, text);
}

std::string_view name_of(PackedAttention packed) {
  return kPacked[static_cast<std::size_t>(packed)];
}

std::string_view name_of(Float8Recipe recipe) {
  constexpr std::array<std::string_view, 3> kRecipes = {"tensorwise", "rowwise", "rowwise_with_gw_hp"};
  return kRecipes[static_cast<std::size_t>(recipe)];
}

std::string_view name_of(ConstantFill fill) {
  return kFills[static_cast<std::size_t>(fill)];
}

std::optional<ConstantFill> parse_constant_fill(std::string_view text) {
  return parse<ConstantFill>(kFills, text);
}

}  // namespace fsdp
