#pragma once

// The machine for a model if the user names none: the one that was used last.

#include <QStringList>
#include <string>

#include "core/cluster/cluster_library.h"
#include "gui/state/inputs.h"

namespace fsdp::gui {

/// The machine before the user has chosen one.
inline constexpr const char* kFirstMachine[] = {"--gpu=H100 SXM", "--gpus=8"};

/// The choices about machines as options, one word each: "--gpus=8".
QStringList machine_of(const Inputs& inputs);

/// The state on that machine. Words that can no longer be read are left out.
Inputs on_machine(Inputs inputs, const QStringList& options);

/// The state with another GPU memory, as the user types it; an empty text takes it back. If no card is named, the
/// stand-in is named from then on: more memory must not change the card to a faster one.
Inputs with_memory(Inputs inputs, const std::string& text, const ClusterLibrary& library);

}  // namespace fsdp::gui
