#include "core/plan/torch_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/nearest.h"

namespace fsdp {

namespace {

// 2.9 reads PYTORCH_ALLOC_CONF, too, but takes expandable_segments from the older name alone, as was seen by running
// it.
//
// Changes of a release stay in those after it.
constexpr Quirks kQuirks8 = {.clip_reduces_each_norm = false,
                             .skip_collectives_of_one = false,
                             .skip_reductions_of_one = false,
                             .recomputation_reshards = true,
                             .cublas_workspaces = CublasWorkspaces::LtPerCall};
constexpr Quirks kQuirks9 = {
    .clip_reduces_each_norm = false, .skip_reductions_of_one = false, .recomputation_reshards = true};
constexpr Quirks kQuirks10 = {};
constexpr Quirks kQuirks12 = {.reduce_input_kept_in_next = true,
                              .frozen_units_free_reduce_input = true,
                              .cublas_workspaces = CublasWorkspaces::Shared};
constexpr Quirks kQuirks13 = {.frozen_units_free_reduce_input = true,
                              .casts_inputs_of_each_module = true,
                              .completes_partial_units = true,
                              .cublas_workspaces = CublasWorkspaces::Shared};
constexpr Quirks kQuirks15 = {.forward_all_gather_output_kept = false,
                              .last_gradient_kept_in_reduce = false,
                              .frozen_units_free_reduce_input = true,
                              .reduces_in_parameter_dtype = true,
                              .casts_gradients_as_they_come = true,
                              .casts_inputs_of_each_module = true,
                              .completes_partial_units = true,
                              .cublas_workspaces = CublasWorkspaces::PerCall};

constexpr std::array kVersions = {
    TorchVersion{.name = "2.8",
                 .release = "2.8.0",
                 .quirks = kQuirks8,
                 .allocator_variable = "PYTORCH_CUDA_ALLOC_CONF",
                 .predicts_offload = false,
                 .has_early_stop = false},
    TorchVersion{.name = "2.9",
                 .release = "2.9.1",
                 .quirks = kQuirks9,
                 .allocator_variable = "PYTORCH_CUDA_ALLOC_CONF",
                 .predicts_offload = false},
    TorchVersion{.name = "2.10", .release = "2.10.0", .quirks = kQuirks10},
    TorchVersion{.name = "2.11", .release = "2.11.0", .quirks = kQuirks10},
    TorchVersion{.name = "2.12", .release = "2.12.1", .quirks = kQuirks12, .reserved_beyond = 0.075},
    TorchVersion{.name = "2.13", .release = "2.13.0", .quirks = kQuirks13, .has_reduce_scatter_settings = true},
    TorchVersion{.name = "2.14", .release = "2.14.1", .quirks = kQuirks13, .has_reduce_scatter_settings = true},
    TorchVersion{.name = "2.15",
                 .release = "2.15.0",
                 .quirks = kQuirks15,
                 .has_reduce_scatter_settings = true,
                 .reserved_beyond = 0.145},
};

/// "2.13" of "2.13.0", where the rest is a number no larger than that of the release that is known.
bool is_of(const TorchVersion& version, std::string_view text) {
  if (text == version.name) return true;
  if (text.size() != version.release.size()) return false;
  return text.starts_with(version.name) && text[version.name.size()] == '.' && text.back() >= '0' &&
         text.back() <= version.release.back();
}

/// 213 of "2.13" and "2.13.1"; nothing of what is no number.
std::optional<int> number_of(std::string_view text) {
  int major = 0;
  int minor = 0;
  const char* end = text.data() + text.size();
  const auto of_major = std::from_chars(text.data(), end, major);
  if (of_major.ec != std::errc() || of_major.ptr == end || *of_major.ptr != '.') return std::nullopt;
  const auto of_minor = std::from_chars(of_major.ptr + 1, end, minor);
  if (of_minor.ec != std::errc() || (of_minor.ptr != end && *of_minor.ptr != '.')) return std::nullopt;
  return 100 * std::clamp(major, 0, 100) + std::clamp(minor, 0, 99);
}

const TorchVersion* nearest_of(std::string_view text) {
  const std::optional<int> number = number_of(text);
  if (!number) return nullptr;
  return &*std::min_element(kVersions.begin(), kVersions.end(), [&](const TorchVersion& a, const TorchVersion& b) {
    return std::abs(*number_of(a.name) - *number) < std::abs(*number_of(b.name) - *number);
  });
}

}  // namespace

std::span<const TorchVersion> torch_versions() {
  return kVersions;
}

Result<TorchVersion> find_torch_version(std::string_view text) {
  for (const TorchVersion& version : kVersions) {
    if (is_of(version, text)) return version;
  }
  std::vector<std::string_view> names;
  for (const TorchVersion& version : kVersions) names.push_back(version.name);
  std::string hint = fmt::format("Known are {}.", join_names(names));
  if (const TorchVersion* nearest = nearest_of(text)) hint = fmt::format("The nearest is {}. {}", nearest->name, hint);
  return failure("", fmt::format("The behavior of PyTorch \"{}\" is not known.", text), std::move(hint));
}

const TorchVersion& torch_version_of(const Runtime& runtime) {
  const auto found = std::find_if(kVersions.begin(), kVersions.end(),
                                  [&](const TorchVersion& version) { return is_of(version, runtime.version); });
  assert(found != kVersions.end());
  return *found;
}

std::string allocator_environment(const Runtime& runtime) {
  if (runtime.allocator_settings.empty()) return "";
  return fmt::format("{}={}", torch_version_of(runtime).allocator_variable, runtime.allocator_settings);
}

const TorchVersion& newest_torch_version() {
  return kVersions.back();
}

void set_torch_version(Runtime& runtime, const TorchVersion& version) {
  runtime.version = version.release;
  runtime.quirks = version.quirks;
}

}  // namespace fsdp
