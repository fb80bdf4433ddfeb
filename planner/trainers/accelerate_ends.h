#pragma once

// The modules outside of the blocks that accelerate makes units of by itself.

#include <string>
#include <vector>

#include "core/model/model.h"

namespace fsdp::planner {

/// Names of modules; empty: there is none.
struct AccelerateEnds {
  std::string embedding;          ///< A unit of its own.
  std::vector<std::string> tail;  ///< One unit, which stays gathered after forward.

  bool operator==(const AccelerateEnds&) const = default;
};

/// Those of a model, as transformers' classes name them. Not modeled: a class that overrides get_input_embeddings or
/// get_output_embeddings with another name than those that are known here.
AccelerateEnds accelerate_ends_of(const Model& model);

}  // namespace fsdp::planner
