#pragma once

// The machine that a model is opened on when nobody names one: the one that was used last.

#include <QStringList>
#include <string>

#include "core/cluster/cluster_library.h"
#include "gui/state/inputs.h"

namespace fsdp::gui {

/// The machine before anybody has used one.
inline constexpr const char* kFirstMachine[] = {"--gpu=H100 SXM", "--gpus=8"};

/// The choices about machines as options, each a word: "--gpus=8".
QStringList machine_of(const Inputs& inputs);

/// The state on that machine. Words that nobody can read any more are left out.
Inputs on_machine(Inputs inputs, const QStringList& options);

/// The state with other memory of a GPU, as somebody types it; an empty text takes it back. Where no card is named, the
/// one that stood in until now is named from then on: more memory on it is no other card, which would be faster as
/// well.
Inputs with_memory(Inputs inputs, const std::string& text, const ClusterLibrary& library);

}  // namespace fsdp::gui
