#pragma once

// The modules outside the blocks that accelerate makes units by itself.

#include <string>
#include <vector>

#include "core/model/model.h"

namespace fsdp::planner {

/// Names of modules. Empty if there is none.
struct AccelerateEnds {
  std::string embedding;          ///< A unit of its own.
  std::vector<std::string> tail;  ///< One unit that stays gathered after forward.

  bool operator==(const AccelerateEnds&) const = default;
};

/// The ends of a model, by the names of transformers' classes. Not modeled: a class that overrides get_input_embeddings
/// or get_output_embeddings to return a module with a name that we do not know.
AccelerateEnds accelerate_ends_of(const Model& model);

}  // namespace fsdp::planner
