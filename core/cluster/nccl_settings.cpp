// The meaning of NCCL_ALGO and NCCL_PROTO.
//
//   list           names with commas, in any case: the allowed ones; after "^" the forbidden ones.
//   functions      from 2.24 on, with semicolons: "allreduce:Tree,NVLS;allgather:Ring"; others keep their default.
//
// Until 2.23, a list without rings still allowed them for all-gathers and reduce-scatters. From 2.24 on such a
// collective fails with "no algorithm/protocol available", so it is an error here.
//
// Sources: NCCL, src/graph/tuning.cc (parseList, ncclTopoTuneModel) and src/enqueue.cc (topoGetAlgoInfo), 2.23
// and 2.30; docs, env.rst.
//
// Not modeled: algorithms in the list that the machine lacks (NVLS on A100), so that NCCL uses the others of the list.

#include "core/cluster/nccl_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "core/base/nearest.h"
#include "core/base/split.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, kNumNcclAlgorithms> kAlgorithms = {
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
constexpr std::array<std::string_view, kNumNcclProtocols> kProtocols = {"LL", "LL128", "Simple"};

constexpr int kOldestMinor = 20;
constexpr int kNewestMinor = 30;
constexpr int kFirstWithFunctions = 24;

constexpr std::string_view kVersionPlace = "--nccl-version";
constexpr std::string_view kAlgorithmsPlace = "--nccl-algo";
constexpr std::string_view kProtocolsPlace = "--nccl-proto";

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::optional<std::size_t> index_of(std::string_view name, std::span<const std::string_view> names) {
  const std::string lower = in_lower_case(name);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (in_lower_case(names[i]) == lower) return i;
  }
  return std::nullopt;
}

Error unknown(std::string_view place, std::string_view noun, std::string_view name,
              std::span<const std::string_view> names) {
  const auto nearest = nearest_name(name, names);
  return {std::string(place), fmt::format("Unknown {} \"{}\".", noun, name),
          nearest ? fmt::format("Did you mean {}?", *nearest) : fmt::format("Known are {}.", fmt::join(names, ", "))};
}

/// One of the two variables.
struct Variable {
  std::string_view place;
  std::string_view noun;
  std::span<const std::string_view> names;
};

std::optional<std::uint8_t> read_list(std::string_view list, const Variable& variable, Errors& errors) {
  const bool excludes = list.starts_with('^');
  if (excludes) list.remove_prefix(1);
  unsigned named = 0;
  for (const std::string_view name : split(list, ',')) {
    if (const auto found = index_of(name, variable.names)) {
      named |= 1U << *found;
    } else {
      errors.push_back(unknown(variable.place, variable.noun, name, variable.names));
    }
  }
  if (!errors.empty()) return std::nullopt;
  return static_cast<std::uint8_t>(excludes ? ~named : named);
}

void read_variable(std::string_view text, const Variable& variable, int minor_version,
                   std::array<std::uint8_t, kNumNcclFunctions>& allowed, Errors& errors) {
  if (text.empty()) return;
  for (const std::string_view part : split(text, ';')) {
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos) {
      if (const auto mask = read_list(part, variable, errors)) allowed.fill(*mask);
      continue;
    }
    if (minor_version < kFirstWithFunctions) {
      errors.push_back({std::string(variable.place), "NCCL tells functions apart from 2.24 on.",
                        fmt::format("Write a list without \"{}\".", part.substr(0, colon + 1))});
      continue;
    }
    const auto function = index_of(part.substr(0, colon), kNcclFunctions);
    if (!function) {
      errors.push_back(unknown(variable.place, "collective", part.substr(0, colon), kNcclFunctions));
      continue;
    }
    if (const auto mask = read_list(part.substr(colon + 1), variable, errors)) allowed[*function] = *mask;
  }
}

std::optional<int> read_version(const std::string& text, Errors& errors) {
  if (text.empty()) return kNewestMinor;
  int minor = 0;
  const char* const end = text.data() + text.size();
  const bool is_second = text.starts_with("2.");
  const auto [rest, error] = std::from_chars(text.data() + (is_second ? 2 : 0), end, minor);
  const bool is_version = is_second && error == std::errc() && (rest == end || *rest == '.');
  if (is_version && minor >= kOldestMinor && minor <= kNewestMinor) return minor;
  errors.push_back({std::string(kVersionPlace), fmt::format("NCCL \"{}\" is not known.", text),
                    fmt::format("Write 2.{} to 2.{}, such as 2.27.5.", kOldestMinor, kNewestMinor)});
  return std::nullopt;
}

void check_something_is_left(const NcclRules& rules, Errors& errors) {
  for (std::size_t f = 0; f < kNumNcclFunctions; ++f) {
    const bool reduces_all = kNcclFunctions[f] == "allreduce";
    const int function = static_cast<int>(f);
    const auto works = [&](NcclAlgorithm algorithm) {
      return rules.allows(function, algorithm, NcclProtocol::LL) ||
             rules.allows(function, algorithm, NcclProtocol::Simple);
    };
    if (works(NcclAlgorithm::Ring) || (reduces_all && works(NcclAlgorithm::Tree))) continue;
    const bool is_protocol = ((rules.algorithms[f] >> static_cast<int>(NcclAlgorithm::Ring)) & 1) != 0;
    errors.push_back({std::string(is_protocol ? kProtocolsPlace : kAlgorithmsPlace),
                      fmt::format("This leaves {} no choice that every machine has.", kNcclFunctions[f]),
                      is_protocol   ? "Add LL or Simple."
                      : reduces_all ? "Add Ring or Tree."
                                    : fmt::format("Add Ring, or write \"{}:Ring;...\".", kNcclFunctions[f])});
  }
}

}  // namespace

std::string_view name_of(NcclAlgorithm algorithm) {
  return kAlgorithms[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(NcclProtocol protocol) {
  return kProtocols[static_cast<std::size_t>(protocol)];
}

Result<NcclRules> nccl_rules(const NcclSettings& settings) {
  NcclRules rules;
  Errors errors;
  rules.minor_version = read_version(settings.version, errors).value_or(kNewestMinor);
  read_variable(settings.algorithms, {kAlgorithmsPlace, "algorithm of NCCL", kAlgorithms}, rules.minor_version,
                rules.algorithms, errors);
  read_variable(settings.protocols, {kProtocolsPlace, "protocol of NCCL", kProtocols}, rules.minor_version,
                rules.protocols, errors);
  if (rules.minor_version < kFirstWithFunctions) {
    for (std::size_t f = 0; f < kNumNcclFunctions; ++f) {
      if (kNcclFunctions[f] != "allreduce") rules.algorithms[f] |= 1U << static_cast<int>(NcclAlgorithm::Ring);
    }
  }
  if (errors.empty()) check_something_is_left(rules, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return rules;
}

}  // namespace fsdp
