#pragma once

// Files of other programs, and of this one, in the place of another kind: told by what they hold.

#include <optional>
#include <string_view>

#include "core/base/json_document.h"
#include "core/base/result.h"

namespace fsdp {

/// The kind of file that a reader wants.
enum class WantedFile { ModelSpec, Plan, Cluster };

/// One sentence that says what a text is that is no JSON at all: a file of tensors, a pickle, a YAML or TOML
/// configuration. Nothing: it is not known.
std::optional<Error> recognize_text(std::string_view text, std::string_view name);

/// One sentence that says what a JSON text is, where it is clearly another kind than the one wanted: a file of Hugging
/// Face or DeepSpeed, or a spec, plan, cluster or report of this program.
std::optional<Error> recognize_json(const JsonDocument& document, WantedFile wanted);

/// Whether an error is one of these sentences: the file is no model, plan or cluster, and what else a command line
/// lacks for one says nothing to who named it.
bool is_about_foreign_file(const Error& error);

}  // namespace fsdp
