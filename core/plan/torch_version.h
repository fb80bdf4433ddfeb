#pragma once

// The releases of PyTorch whose behavior is predicted. A release is the values of Quirks that it has; no rule asks for
// a number.

#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/plan/runtime.h"

namespace fsdp {

/// A release of PyTorch.
struct TorchVersion {
  std::string_view name;     ///< "2.13": what people write.
  std::string_view release;  ///< "2.13.0": its last one that predictions were held against.
  Quirks quirks;
  std::string_view allocator_variable = "PYTORCH_ALLOC_CONF";  ///< The environment variable that it reads.
  /// The pinned memory of CPUOffloadPolicy is known. 2.8 and 2.9 were seen to pin twice of it.
  bool predicts_offload = true;
  bool has_early_stop = true;  ///< torch.utils.checkpoint.checkpoint takes it.
  /// FSDPModule.set_reduce_scatter_max_input_buffers and set_separate_reduce_scatter_group are there.
  bool has_reduce_scatter_settings = false;
  /// By how much more than predicted was seen to be reserved, as a share: 12.3 % of 2.15, 6.7 % of 2.12, of which live
  /// bytes are equal and blocks lie otherwise (docs/oracle.md). The margin has it.
  double reserved_beyond = 0;
};

/// All of them, the oldest first.
std::span<const TorchVersion> torch_versions();

/// The one that is predicted where nothing is said.
inline constexpr std::string_view kDefaultTorch = "2.11";

/// The release that a text names: "2.13", or with its patch "2.13.0". Error: no release that is known; `where` is
/// empty.
Result<TorchVersion> find_torch_version(std::string_view text);

/// That of a runtime. REQUIRES: the runtime's version is known, as readers and `set_torch_version` see to.
const TorchVersion& torch_version_of(const Runtime& runtime);

/// "PYTORCH_ALLOC_CONF=expandable_segments:True": what a process of the runtime has in its environment, by the name
/// that its release reads. Empty: the runtime has no settings of the allocator.
std::string allocator_environment(const Runtime& runtime);

/// The newest one.
const TorchVersion& newest_torch_version();

/// Has the runtime be of that release, with its quirks.
void set_torch_version(Runtime& runtime, const TorchVersion& version);

struct Plan;

/// Errors for settings that the plan's release of PyTorch lacks, or that are not predicted for it. Part of check().
Errors check_torch(const Plan& plan);

}  // namespace fsdp
