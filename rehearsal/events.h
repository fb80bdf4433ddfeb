#pragma once

// Events: marks in streams.

#include "rehearsal/work.h"

namespace fsdp::rehearsal {

/// What the event marks at the moment.
Mark mark_of(cudaEvent_t event);

}  // namespace fsdp::rehearsal
