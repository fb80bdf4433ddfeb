#include "core/plan/loss_table.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "core/base/nearest.h"
#include "core/base/parse_units.h"

namespace fsdp {

namespace {

constexpr std::string_view kLossOption = "--loss";
constexpr std::string_view kChunks = "chunks=";
constexpr std::int64_t kMostChunks = 1 << 20;

}  // namespace

Result<Loss> parse_loss(std::string_view text) {
  const std::size_t comma = text.find(',');
  const std::string_view name = text.substr(0, comma);
  const LossRow* found = nullptr;
  std::vector<std::string> names;
  for (const LossRow& row : kLossRows) {
    if (row.name == name) found = &row;
    names.emplace_back(row.name);
  }
  if (found == nullptr) {
    return failure(std::string(kLossOption), fmt::format("Unknown loss \"{}\".", name),
                   suggest_name(std::string(name), names));
  }
  Loss loss{.kind = found->kind};
  if (comma == std::string_view::npos) return loss;
  const std::string_view option = text.substr(comma + 1);
  if (found->chunks == 0) {
    return failure(std::string(kLossOption), fmt::format("{} has no option \"{}\".", found->title, option),
                   fmt::format("Write {}.", found->name));
  }
  const std::optional<std::int64_t> chunks =
      option.starts_with(kChunks) ? parse_integer(option.substr(kChunks.size())) : std::nullopt;
  if (!chunks || *chunks < 1 || *chunks > kMostChunks) {
    return failure(std::string(kLossOption), fmt::format("\"{}\" is not a number of chunks.", option),
                   fmt::format("Write {},chunks={}, for example.", found->name, found->chunks));
  }
  loss.chunks = *chunks;
  return loss;
}

std::string to_text(const Loss& loss) {
  const std::string_view name = loss_row(loss).name;
  return loss.chunks == 0 ? std::string(name) : fmt::format("{},chunks={}", name, loss.chunks);
}

}  // namespace fsdp
