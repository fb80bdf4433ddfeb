#pragma once

// A rehearsal's findings beside memory and traffic. The real PyTorch ran a training script; this records the script's
// actions, the origin of its memory, and the limits of the figures. A part of the report (core/report/report.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/plan/step_phase.h"

namespace fsdp {

struct PythonFrame {
  std::string file;
  std::int64_t line = 0;
  std::string function;

  bool operator==(const PythonFrame&) const = default;
};

/// Memory that is live at the peak, by the line of Python that requested it.
struct AllocationSite {
  PythonFrame frame;    ///< An empty file stands for all smaller ones together.
  std::string through;  ///< The call there: "torch/nn/functional.py:3504 cross_entropy", "autograd"; may be empty.
  std::int64_t count = 0;
  Bytes bytes;

  bool operator==(const AllocationSite&) const = default;
};

/// Parameters that a wrapper gathers and reduces together.
struct AppliedUnit {
  std::string name;  ///< "model.layers.0"; "" is the root.
  std::string class_name;
  std::int64_t parameters = 0;  ///< Tensors.
  std::int64_t elements = 0;

  bool operator==(const AppliedUnit&) const = default;
};

/// The parallelism of a model as applied, not as requested.
struct AppliedWrapper {
  std::string name;   ///< "FSDP2", "FSDP1", "DDP", "DeepSpeed ZeRO-3", "plain".
  std::string model;  ///< Class of the wrapped model.
  std::string class_name;
  std::string version;
  std::string strategy;  ///< "FULL_SHARD"; may be empty.
  std::optional<std::int64_t> zero_stage;
  std::vector<AppliedUnit> units;
  std::string param_dtype;  ///< For mixed precision, like the next three; may be empty.
  std::string reduce_dtype;
  std::string buffer_dtype;
  std::string reshard_after_forward;  ///< "true", "false" or a world size; empty if unknown.
  bool offload = false;
  std::vector<std::string> autocast;  ///< Types of torch.autocast in forward.

  bool operator==(const AppliedWrapper&) const = default;
};

struct AppliedOptimizer {
  std::string class_name;
  std::optional<bool> foreach;  ///< `nullopt` if PyTorch decides.
  std::optional<bool> fused;
  std::int64_t parameters = 0;  ///< Tensors.

  bool operator==(const AppliedOptimizer&) const = default;
};

struct ElementsOfDtype {
  std::string dtype;
  std::int64_t elements = 0;

  bool operator==(const ElementsOfDtype&) const = default;
};

/// A frequent mistake of users that raised no error.
struct RehearsalWarning {
  std::string kind;  ///< "one_unit", "untied_weights", "ignored_version", ...
  std::string text;  ///< A sentence or two.
  std::string file;  ///< Its place; may be empty.
  std::int64_t line = 0;

  bool operator==(const RehearsalWarning&) const = default;
};

/// A value that the script read from the device, which computes nothing.
struct Readback {
  std::string operation;  ///< "nonzero"
  std::string file;
  std::int64_t line = 0;
  std::int64_t count = 0;
  bool steers_sizes = false;  ///< Shapes depend on it, so the memory of a real run may differ.

  bool operator==(const Readback&) const = default;
};

/// The limits of the figures.
struct RehearsalLimits {
  std::vector<Readback> readbacks;
  std::vector<std::string> missing_functions;  ///< Functions of CUDA's libraries that were called but do not exist.
  std::int64_t allocator_event_queries = 0;    ///< If positive, reserved memory depends on when kernels finish.
  std::int64_t cudnn_plans = 0;                ///< Number of runs; each has `cudnn_workspace`.
  Bytes cudnn_workspace;                       ///< A given value: cuDNN itself would return it.
  std::string routing = "none";                ///< Or "balanced": how tokens went to experts.
  bool triton = false;
  bool cuda_graphs = false;
  bool data_dependent_routing = false;  ///< Mixture of experts: the device decides where tokens go.

  bool operator==(const RehearsalLimits&) const = default;
};

/// Between the two bounds on when recorded work counts as finished.
struct PeakRange {
  Bytes low;
  Bytes high;

  bool operator==(const PeakRange&) const = default;
};

struct RehearsedRank {
  std::int64_t rank = 0;
  bool fits = true;
  Bytes allocated;
  PeakRange reserved;
  PeakRange device;

  bool operator==(const RehearsedRank&) const = default;
};

/// A requested rank without figures.
struct UnplayedRank {
  std::int64_t rank = 0;
  std::string why;  ///< A sentence.

  bool operator==(const UnplayedRank&) const = default;
};

/// Live bytes at the peak, by purpose.
struct PeakCategory {
  std::string name;  ///< "parameters", "gradients", "optimizer states", "activations", "communication", "other".
  Bytes bytes;       ///< As requested.

  bool operator==(const PeakCategory&) const = default;
};

/// An exception that ended the script.
struct ScriptError {
  std::string type;
  std::string message;
  std::string traceback;

  bool operator==(const ScriptError&) const = default;
};

/// The request that ran out of memory.
struct FailedAllocation {
  Bytes bytes;
  StepPhase phase = StepPhase::Unknown;
  std::int64_t step = 0;  ///< From 1; 0 for initialization.
  std::string module;
  Bytes free;                      ///< Free memory of the device then.
  PythonFrame at;                  ///< The script's own line, if there is one.
  std::vector<PythonFrame> stack;  ///< Innermost first.

  bool operator==(const FailedAllocation&) const = default;
};

struct Package {
  std::string name;
  std::string version;

  bool operator==(const Package&) const = default;
};

struct Rehearsal {
  std::string measured_on = "stub GPU";  ///< Or "GPU".
  std::vector<std::string> command;      ///< As typed.
  std::string end;                       ///< "steps_reached", "script_ended", "out_of_memory".
  std::optional<ScriptError> error;      ///< The out-of-memory error, unless the script caught it.
  std::optional<FailedAllocation> failed;
  bool timing_decides = false;  ///< It fits at only one of the two bounds of event timing.

  std::string python;
  std::string torch;
  std::string cuda;
  std::vector<Package> packages;

  std::int64_t steps = 0;
  std::int64_t rank = 0;                  ///< The reported rank: the rehearsed one that needs most.
  std::vector<RehearsedRank> ranks;       ///< All rehearsed ranks, by number.
  std::vector<UnplayedRank> unplayed;     ///< Requested ranks that `ranks` lacks.
  bool both_bounds = false;               ///< The ranges were measured, not copied.
  std::int64_t out_of_memory_errors = 0;  ///< Including those that the script caught.
  Bytes at_end_requested;                 ///< Memory of live tensors after the last step, as requested,
  Bytes at_end_allocated;                 ///< and as the allocator rounded it.

  std::vector<AppliedWrapper> wrappers;
  std::vector<ElementsOfDtype> parameter_dtypes;
  std::vector<AppliedOptimizer> optimizers;
  std::vector<std::string> techniques;      ///< "recomputation of 16 x Block", "accumulation over 4 backwards", ...
  std::vector<PeakCategory> categories;     ///< At the peak, largest first; they add up to the requested bytes.
  PythonFrame peak_at;                      ///< The line of the script at the peak, and
  std::vector<PythonFrame> peak_stack;      ///< its calls, innermost first.
  std::vector<AllocationSite> allocations;  ///< At the peak, largest first.
  std::vector<RehearsalWarning> warnings;
  RehearsalLimits limits;

  bool operator==(const Rehearsal&) const = default;
};

}  // namespace fsdp
