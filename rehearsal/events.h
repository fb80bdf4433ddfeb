#pragma once

// Events: marks in streams.

#include "rehearsal/work.h"

namespace fsdp::rehearsal {

/// The current mark of the event.
Mark mark_of(cudaEvent_t event);

}  // namespace fsdp::rehearsal
