#pragma once

// The machine that a model is opened on when nobody names one: the one that was used last.

#include <QStringList>

#include "gui/state/inputs.h"

namespace fsdp::gui {

/// The machine before anybody has used one.
inline constexpr const char* kFirstMachine[] = {"--gpu=H100 SXM", "--gpus=8"};

/// The choices about machines as options, each a word: "--gpus=8".
QStringList machine_of(const Inputs& inputs);

/// The state on that machine. Words that nobody can read any more are left out.
Inputs on_machine(Inputs inputs, const QStringList& options);

/// "8x H100 SXM", "4 GPUs of 16.0 GiB", "4 nodes of 8x H100 SXM": the machine in words; a cluster by its name.
QString machine_text(const Inputs& inputs);

}  // namespace fsdp::gui
