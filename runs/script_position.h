#pragma once

// The position of a rehearsed script, in a few words, from its messages and the stack of its main thread.

#include <string>
#include <string_view>

namespace fsdp::runs {

/// "importing transformers", "making parameters, train.py:12", "step 2 of 3, backward, train.py:14". `stage`: the
/// process's last message; `stacks`: the output of Python's faulthandler, whose last stack counts; either may be empty.
/// `folder`: prefix removed from file names.
std::string position_of(std::string_view stage, std::string_view stacks, std::string_view folder);

}  // namespace fsdp::runs
