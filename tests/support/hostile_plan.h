#pragma once

// Model specs and plans that were damaged, and the way that they take through the whole prediction. Shared by the
// hostile test and the fuzz target.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

/// Texts of a model spec and of a plan for it.
struct HostileFiles {
  std::string name;
  std::string spec;
  std::string plan;
};

/// Whole ones: the drawn cases of tests/golden/oracle, which use most of the formats, and shipped models of two layers.
/// REQUIRES: the project root is the working folder.
std::vector<HostileFiles> whole_files();

/// A captured model, whole, and a plan for it.
HostileFiles whole_capture();

/// A number below a bound.
using Choose = std::function<std::size_t(std::size_t)>;

/// Replaces, copies, repeats or takes away a value of one of the two.
void damage(HostileFiles& files, const Choose& choose);

/// Reads both, builds the model and predicts, as `fsdp-plan simulate` and `export` do. Returns what is wrong with the
/// answer: an error without words or place; empty: nothing.
std::string predict_hostile(const HostileFiles& files);

}  // namespace fsdp
