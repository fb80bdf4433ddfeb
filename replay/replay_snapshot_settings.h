#pragma once

// The allocator's settings in a memory snapshot.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/pickle.h"
#include "simulator/allocator/allocator_settings.h"

namespace fsdp::replay {

/// Settings without blanks, which have no meaning in them; in a trace the settings are one word.
std::string without_blanks(std::string_view settings);

/// The `allocator_settings` of a snapshot, as the text of PYTORCH_ALLOC_CONF and parsed. The user's own text comes
/// first, since it also has settings that the snapshot leaves out; fields that differ from it win, because they were
/// changed while the program ran. Adds a sentence to `notes` for each setting that is not supported.
std::pair<std::string, simulator::AllocatorSettings> settings_of_snapshot(const PickleValue& settings,
                                                                          std::vector<std::string>& notes);

}  // namespace fsdp::replay
