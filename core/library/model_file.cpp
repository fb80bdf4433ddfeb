#include "core/library/model_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "core/base/foreign_files.h"
#include "core/base/json_document.h"
#include "core/formats/hf_config.h"
#include "core/formats/hf_weights.h"

namespace fsdp {

namespace {

bool lies_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

Errors no_configuration(const std::string& folder) {
  // Files with a recognizable kind.
  for (const char* name : {"adapter_config.json", "model_index.json"}) {
    const std::filesystem::path file = std::filesystem::path(folder) / name;
    if (!lies_there(file)) continue;
    const Result<JsonDocument> document = read_json_file(file.string());
    if (!document) return document.error();
    if (auto foreign = recognize_json(*document, WantedFile::ModelSpec)) return {*std::move(foreign)};
  }
  return {{folder, "This is a folder without a config.json.",
           "A folder of Hugging Face has one next to the weights, as save_pretrained writes it; else name a file."}};
}

/// A JSON text without any key of a model, for which a list of all missing keys would not help.
bool is_no_model(const JsonDocument& document) {
  const JsonValue& root = document.root;
  if (root.type != JsonType::Object) return true;
  for (const char* key : {"format_version", "modules", "dimensions", "inputs", "recipes", "kind"}) {
    if (root.find(key) != nullptr) return false;
  }
  return true;
}

/// A config.json, compared with the weights beside it.
Result<ModelSpec> read_configured(const JsonDocument& document, const std::string& path) {
  const std::string folder = path == "-" ? "" : std::filesystem::path(path).parent_path().string();
  const HfWeights weights = path == "-" ? HfWeights() : read_hf_weights(folder);
  FSDP_TRY(ModelSpec spec, read_hf_config(document, weights.dtype));
  if (weights.path.empty()) return spec;
  Errors errors = check_hf_weights(weights, spec);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return spec;
}

}  // namespace

Result<ModelSpec> read_model_file(const std::string& path) {
  std::string file = path;
  if (is_folder(path)) {
    file = (std::filesystem::path(path) / "config.json").string();
    if (!lies_there(file)) return tl::unexpected(no_configuration(path));
  }
  FSDP_TRY(const JsonDocument document, read_json_file(file));
  if (is_hf_config(document)) return read_configured(document, file);
  if (auto foreign = recognize_json(document, WantedFile::ModelSpec))
    return tl::unexpected(Errors{*std::move(foreign)});
  if (is_no_model(document)) {
    return failure(document.name, "This is JSON, and no model.",
                   "A model is a spec (fsdp-plan schema model), a captured model, or a config.json of Hugging Face.");
  }
  return read_model_spec(document);
}

}  // namespace fsdp
