#pragma once

// Recognizes files of another kind, of other programs and of this one, by their content.

#include <optional>
#include <string_view>

#include "core/base/json_document.h"
#include "core/base/result.h"

namespace fsdp {

/// The kind of file that a reader wants.
enum class WantedFile { ModelSpec, Plan, Cluster };

/// One sentence about a text that is not JSON: a file of tensors, a pickle, a YAML or TOML configuration. `nullopt` if
/// it is unknown.
std::optional<Error> recognize_text(std::string_view text, std::string_view name);

/// One sentence about a JSON text that is clearly of another kind than the wanted one: a file of Hugging Face or
/// DeepSpeed, or a spec, plan, cluster or report of this program.
std::optional<Error> recognize_json(const JsonDocument& document, WantedFile wanted);

/// Whether an error is one of these sentences. The file is then no model, plan or cluster, so further errors about
/// missing options do not help the user.
bool is_about_foreign_file(const Error& error);

}  // namespace fsdp
