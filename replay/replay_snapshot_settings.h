#pragma once

// The allocator's settings as a memory snapshot has them.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/pickle.h"
#include "simulator/allocator/allocator_settings.h"

namespace fsdp::planner {

/// Blanks count nowhere in settings; a trace has them as one word.
std::string without_blanks(std::string_view settings);

/// The `allocator_settings` of a snapshot, as PYTORCH_ALLOC_CONF would say them, and read. The text that the user wrote
/// comes first, since it also has what the snapshot leaves out; fields that say something else win, because they were
/// changed while the program ran. Adds a sentence to `notes` for what cannot be taken over.
std::pair<std::string, simulator::AllocatorSettings> settings_of_snapshot(const PickleValue& settings,
                                                                          std::vector<std::string>& notes);

}  // namespace fsdp::planner
