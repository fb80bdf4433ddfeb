#pragma once

// PyTorch's auto-wrap policies: which modules they make units, and what they found at each module that they visited.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "planner/space/space.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

/// What a policy decides of a module.
enum class PolicyVerdict : std::uint8_t {
  Root,        ///< A unit whatever the policy says.
  Unit,        ///< As many elements as the threshold remain, or its class is named.
  TooSmall,    ///< Fewer elements than the threshold: what is inside is not visited.
  Remainder,   ///< Visited, and after the units inside fewer elements remain than the threshold.
  Excluded,    ///< Enough remain, and its class is never wrapped: ModuleList, ModuleDict.
  ForcedLeaf,  ///< Enough elements, and its class is never looked into or wrapped: MultiheadAttention.
  OtherClass,  ///< Its class is not named.
};

/// A module as a policy saw it.
struct PolicyVisit {
  int module = 0;  ///< In `Model::modules`.
  PolicyVerdict verdict = PolicyVerdict::Root;
  std::int64_t elements = 0;   ///< Elements of the parameters below it, each once.
  std::int64_t remaining = 0;  ///< The same less the elements of the units inside; `elements` where it was not visited.

  bool operator==(const PolicyVisit&) const = default;
};

/// What a policy chooses, whether or not it can be a unit.
struct PolicyRun {
  std::vector<PolicyVisit> visits;  ///< In order of registration, parents before their children.
  std::vector<int> units;           ///< In `Model::modules`, children first, without the root.

  bool operator==(const PolicyRun&) const = default;
};

/// Modules of which a policy says the same.
struct PolicyRow {
  std::string modules;     ///< "model.layers.{0..27}"; "" is the root.
  std::string class_name;  ///< "Qwen3DecoderLayer"
  std::int64_t count = 1;
  std::int64_t elements = 0;   ///< Elements of each.
  std::int64_t remaining = 0;  ///< For each: PolicyVisit::remaining.
  bool is_unit = false;
  std::string why;

  bool operator==(const PolicyRow&) const = default;
};

/// What a policy did, for people.
struct PolicyExplanation {
  std::string policy;                ///< As the option says it: "size:100M".
  std::vector<PolicyRow> rows;       ///< Without modules that were not looked into and have no parameters.
  std::int64_t root_elements = 0;    ///< Elements of parameters in no unit below the root.
  std::vector<std::string> in_root;  ///< Modules that hold them: the topmost with no unit inside, and those with
                                     ///< parameters of their own around units. Rows of names folded.

  bool operator==(const PolicyExplanation&) const = default;
};

/// What no policy weighs, and the planner does.
inline constexpr std::string_view kNotWeighed =
    "A policy counts elements or reads class names. It does not weigh communication, the number of GPUs, dtypes, "
    "memory "
    "or the order in which modules run.";

/// Reads the modules and parameters of the model alone. REQUIRES: is_policy(wrap).
PolicyRun run_policy(const Model& model, const Wrap& wrap);

/// The units that a policy chooses, or patterns of names match. Errors, all of them: a class that no module has; a
/// module that is chosen and cannot be a unit; those of wrapping_of_patterns. REQUIRES: names_units(wrap).
Result<Wrapping> wrapping_by_name(const Model& model, const Wrap& wrap);

/// REQUIRES: is_policy(wrap).
PolicyExplanation explain_policy(const Model& model, const Wrap& wrap);

/// "82.1 M": a number of elements, in thousands as the policies' users count.
std::string format_elements(std::int64_t elements);

}  // namespace fsdp::planner
