#pragma once

// The small models that tests/golden/fsdp2_collectives was made with, by their sizes. What an op computes does not
// matter there, but which parameters there are, where they are registered, which module runs when, and what depends on
// what does.

#include <map>
#include <string>

#include "core/model/model.h"

namespace fsdp {

/// "hidden" -> "32", as the golden file writes them.
using Words = std::map<std::string, std::string>;

/// kind: llama, moe, gpt2, vit, mlp or t5. Ends the test program on another.
Model collective_model(const std::string& kind, const Words& sizes, Dtype dtype);

}  // namespace fsdp
