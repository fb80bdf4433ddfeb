#pragma once

// PyTorch's auto-wrap policies: the modules that they make units, and their findings at each module.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "planner/space/space.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

/// A policy's decision on a module.
enum class PolicyVerdict : std::uint8_t {
  Root,        ///< A unit regardless of the policy.
  Unit,        ///< At least as many elements as the threshold remain, or its class is named.
  TooSmall,    ///< Fewer elements than the threshold; the policy does not visit the modules inside.
  Remainder,   ///< Visited, but fewer elements than the threshold remain after the units inside.
  Excluded,    ///< Enough elements remain, but the policy never wraps its class: ModuleList, ModuleDict.
  ForcedLeaf,  ///< Enough elements, but the policy neither wraps nor enters its class: MultiheadAttention.
  OtherClass,  ///< Its class is not named.
};

/// A policy's findings at a module.
struct PolicyVisit {
  int module = 0;  ///< An index of `Model::modules`.
  PolicyVerdict verdict = PolicyVerdict::Root;
  std::int64_t elements = 0;   ///< Elements of the parameters below it, each once.
  std::int64_t remaining = 0;  ///< The same less the elements of the units inside; `elements` if not visited.

  bool operator==(const PolicyVisit&) const = default;
};

/// The choice of a policy, including modules that cannot be units.
struct PolicyRun {
  std::vector<PolicyVisit> visits;  ///< In order of registration, parents before their children.
  std::vector<int> units;           ///< Indices of `Model::modules`, children first, without the root.

  bool operator==(const PolicyRun&) const = default;
};

/// Modules with the same findings.
struct PolicyRow {
  std::string modules;     ///< "model.layers.{0..27}"; "" for the root.
  std::string class_name;  ///< "Qwen3DecoderLayer"
  std::int64_t count = 1;
  std::int64_t elements = 0;   ///< Elements of each.
  std::int64_t remaining = 0;  ///< For each: PolicyVisit::remaining.
  bool is_unit = false;
  std::string why;

  bool operator==(const PolicyRow&) const = default;
};

/// The work of a policy, for people.
struct PolicyExplanation {
  std::string policy;                ///< As in the option: "size:100M".
  std::vector<PolicyRow> rows;       ///< Omits modules that the policy did not visit and that have no parameters.
  std::int64_t root_elements = 0;    ///< Elements of parameters in no unit below the root.
  std::vector<std::string> in_root;  ///< Modules that hold them: the topmost ones without a unit inside, and those
                                     ///< around units with parameters of their own. Rows of names are folded.

  bool operator==(const PolicyExplanation&) const = default;
};

/// Costs that the planner weighs and no policy does.
inline constexpr std::string_view kNotWeighed =
    "A policy counts elements or reads class names. It does not weigh communication, the number of GPUs, dtypes, "
    "memory "
    "or the order in which modules run.";

/// Reads only the modules and parameters of the model. REQUIRES: is_policy(wrap).
PolicyRun run_policy(const Model& model, const Wrap& wrap);

/// The units that a policy chooses, or that match patterns of names. Errors, all of them: a class without a module; a
/// chosen module that cannot be a unit; those of wrapping_of_patterns. REQUIRES: names_units(wrap).
Result<Wrapping> wrapping_by_name(const Model& model, const Wrap& wrap);

/// In place of a class: the adapters of PEFT, and its trained copies.
inline constexpr std::string_view kAdaptersClass = "adapters";
/// In place of a class: that of the repeated blocks, as transformers' _no_split_modules names it.
inline constexpr std::string_view kBlocksClass = "blocks";

/// REQUIRES: is_policy(wrap).
PolicyExplanation explain_policy(const Model& model, const Wrap& wrap);

/// "82.1 M": a number of elements, in decimal units as for the policies' thresholds.
std::string format_elements(std::int64_t elements);

}  // namespace fsdp::planner
