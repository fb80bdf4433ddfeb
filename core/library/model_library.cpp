#include "core/library/model_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/base/environment.h"
#include "core/base/files.h"
#include "core/base/json_document.h"
#include "core/base/nearest.h"
#include "core/library/model_file.h"
#include "core/version.h"

namespace fsdp {

namespace {

constexpr std::string_view kSpecEnding = ".json";

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// build_model()'s errors about a workload, with their places in a plan file.
Errors placed_in_plan(Errors errors, const Plan& plan, const std::string& plan_path) {
  const Result<JsonDocument> document = read_json_file(plan_path);
  const JsonValue* model = document ? document->root.find("model") : nullptr;
  if (model == nullptr) return errors;
  const auto place = [&](Error& error, std::string_view key, std::size_t index, const std::string& name) {
    const JsonValue* list = model->find(key);
    const JsonValue* value = nullptr;
    if (list != nullptr && index < list->elements.size()) value = &list->elements[index];
    if (list != nullptr && !name.empty()) value = list->find(name);
    if (value != nullptr) error.where = document->where(value->offset);
  };
  for (Error& error : errors) {
    for (const Dimension& dimension : plan.dimensions) {
      if (error.where == "dimension " + dimension.name) place(error, "dimensions", 0, dimension.name);
    }
    for (const auto& [flag, key, patterns] :
         {std::tuple{"--trainable", "trainable", &plan.trainable}, std::tuple{"--freeze", "frozen", &plan.frozen}}) {
      for (std::size_t i = 0; error.where == flag && i < patterns->size(); ++i) {
        if (error.what.find("\"" + (*patterns)[i] + "\"") != std::string::npos) place(error, key, i, {});
      }
    }
    if (error.where == "--recipe") {
      const JsonValue* recipe = model->find("recipe");
      if (recipe != nullptr) error.where = document->where(recipe->offset);
    }
  }
  return errors;
}

}  // namespace

std::string library_of_process() {
  if (std::string folder = environment_variable("FSDP_PLAN_MODEL_SPECS"); !folder.empty()) return folder;
  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "model_specs";
  return (executable.parent_path() / kModelSpecsFromExecutable).lexically_normal().string();
}

std::vector<std::string> model_names(const std::string& library) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(library, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() > kSpecEnding.size() && name.ends_with(kSpecEnding)) {
      names.push_back(name.substr(0, name.size() - kSpecEnding.size()));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

std::string in_folder(const std::string& library, const std::string& name) {
  return (std::filesystem::path(library) / (name + std::string(kSpecEnding))).string();
}

/// A name for comparison: lower case letters and digits only.
std::string model_key(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

/// "owner/name" if no such folder exists.
bool is_hub_name(const std::string& argument) {
  const std::size_t slash = argument.find('/');
  const bool has_one = slash != std::string::npos && slash > 0 && slash + 1 < argument.size() &&
                       argument.find('/', slash + 1) == std::string::npos;
  return has_one && argument[0] != '.' && argument[0] != '~' && !argument.ends_with(kSpecEnding) &&
         !is_there(argument.substr(0, slash));
}

/// "Qwen/Qwen3-8B" for each shipped model whose figures come from the Hugging Face hub, with the model's own name.
std::vector<std::pair<std::string, std::string>> hub_names(const std::string& library,
                                                           const std::vector<std::string>& names) {
  constexpr std::string_view kHub = "https://huggingface.co/";
  std::vector<std::pair<std::string, std::string>> result;
  for (const std::string& name : names) {
    const Result<JsonDocument> document = read_json_file(in_folder(library, name));
    const JsonValue* source = document ? document->root.find("source") : nullptr;
    if (source == nullptr || !source->text.starts_with(kHub)) continue;
    const std::string_view page = std::string_view(source->text).substr(kHub.size());
    result.emplace_back(page.substr(0, page.find("/blob/")), name);
  }
  return result;
}

/// Whether names of the hub are equal but for the case of their letters.
bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// The shipped model with this name on the Hugging Face hub, with or without its owner:
/// "meta-llama/Llama-3.1-70B-Instruct". Tuned versions are the same model.
std::optional<std::string> model_of_hub_name(std::string_view hub_name, const std::vector<std::string>& names) {
  const std::size_t slash = hub_name.find('/');
  if (slash != std::string_view::npos) hub_name.remove_prefix(slash + 1);
  if (hub_name.find('/') != std::string_view::npos) return std::nullopt;
  const std::string wanted = model_key(hub_name);
  for (const std::string_view ending : {"", "instruct", "base", "chat", "it", "hf", "instruct2507", "thinking2507"}) {
    for (const std::string_view beginning : {"", "meta"}) {
      if (!wanted.ends_with(ending) || !wanted.starts_with(beginning)) continue;
      if (wanted.size() <= ending.size() + beginning.size()) continue;
      const std::string bare = wanted.substr(beginning.size(), wanted.size() - beginning.size() - ending.size());
      const auto found =
          std::find_if(names.begin(), names.end(), [&](const std::string& name) { return model_key(name) == bare; });
      if (found != names.end()) return *found;
    }
  }
  return std::nullopt;
}

/// The configuration of a model in the hub's cache on this machine, as huggingface_hub lays it out:
/// models--OWNER--NAME/refs/main names the revision, snapshots/REVISION has its files.
std::optional<std::string> in_hub_cache(std::string name) {
  std::filesystem::path cache = environment_variable("HF_HUB_CACHE");
  if (cache.empty()) {
    const std::string home = environment_variable("HF_HOME");
    cache = home;
    if (home.empty()) cache = std::filesystem::path(environment_variable("HOME")) / ".cache/huggingface";
    cache /= "hub";
  }
  name.replace(name.find('/'), 1, "--");
  const std::filesystem::path model = cache / ("models--" + name);
  const std::string revision = first_bytes_of((model / "refs/main").string(), 64);
  const std::filesystem::path config = model / "snapshots" / revision / "config.json";
  return !revision.empty() && is_there(config) ? std::optional(config.string()) : std::nullopt;
}

/// Whether `fsdp-plan models` lists this name.
bool is_named(const std::string& argument, const std::string& library) {
  const std::vector<std::string> names = model_names(library);
  return std::find(names.begin(), names.end(), argument) != names.end();
}

/// A shipped model by the page of its figures, whatever its name here.
Result<std::string> find_hub_name(const std::string& argument, const std::string& library) {
  const std::vector<std::string> names = model_names(library);
  const auto on_hub = hub_names(library, names);
  std::vector<std::string> known;
  for (const auto& [hub_name, name] : on_hub) {
    if (same_letters(hub_name, argument)) return in_folder(library, name);
    known.push_back(hub_name);
  }
  std::optional<std::string> nearest = nearest_name(argument, known);
  if (!nearest) nearest = nearest_name(argument.substr(argument.find('/') + 1), names);
  const std::string meant = nearest ? fmt::format("Did you mean \"{}\"? ", *nearest) : "";
  return failure(argument, "There is no such file or folder, and no such model is shipped.",
                 fmt::format("{0}Nothing is downloaded here: say huggingface-cli download {1} config.json --local-dir "
                             "{2}, and then fsdp-plan {2}.",
                             meant, argument, argument.substr(argument.find('/') + 1)));
}

}  // namespace

Result<std::string> find_model_file(const std::string& argument, const std::string& library, const std::string& near) {
  // A folder of results may have the name of a shipped model; one that contains a model takes precedence over the
  // library.
  const bool is_shipped = is_named(argument, library);
  const auto has_model = [&](const std::filesystem::path& path) {
    std::error_code ignored;
    return is_there(path) &&
           !(is_shipped && std::filesystem::is_directory(path, ignored) && !is_there(path / "config.json"));
  };
  if (argument == "-" || has_model(argument)) return argument;
  if (!near.empty() && has_model(std::filesystem::path(near) / argument)) {
    return (std::filesystem::path(near) / argument).string();
  }
  const bool is_path = argument.find('/') != std::string::npos;
  if (!argument.ends_with(kSpecEnding)) {
    if (const auto name = model_of_hub_name(argument, model_names(library))) return in_folder(library, *name);
  }
  if (is_hub_name(argument)) {
    if (auto cached = in_hub_cache(argument)) return *std::move(cached);
    return find_hub_name(argument, library);
  }
  if (!is_path) {
    const std::string name =
        argument.ends_with(kSpecEnding) ? argument.substr(0, argument.size() - kSpecEnding.size()) : argument;
    const std::vector<std::string> names = model_names(library);
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return in_folder(library, name);
    }
    if (!argument.ends_with(kSpecEnding)) {
      const std::optional<std::string> nearest = nearest_name(name, names);
      return failure(argument, "There is no such file, and no such model is shipped.",
                     nearest ? fmt::format("Did you mean \"{}\"?", *nearest)
                             : "Run \"fsdp-plan models\" for the names of the models.");
    }
  }
  // The reader's own message describes what is there instead.
  const Result<std::string> text = read_text_file(argument);
  if (!text) return tl::unexpected(text.error());
  return argument;
}

void read_other_models(const std::vector<OtherModel>& also, const std::string& library, Workload& workload,
                       Errors& errors, const std::string& near) {
  workload.also.clear();
  for (const OtherModel& other : also) {
    const Result<std::string> path = find_model_file(other.file, library, near);
    Result<ModelSpec> spec = path ? read_model_file(*path) : tl::unexpected(path.error());
    if (spec) {
      workload.also.push_back({other, std::make_shared<const ModelSpec>(*std::move(spec))});
    } else {
      append(errors, std::move(spec).error());
    }
  }
}

Result<PlannedModel> model_of_plan(const Plan& plan, const std::string& plan_path, const std::string& library) {
  if (plan.model_file == "-") {
    return failure(plan_path + ": /model/file", "The model was read from the standard input.",
                   "Save the model and write its file name here.");
  }
  const std::string folder = std::filesystem::path(plan_path).parent_path().string();
  PlannedModel planned;
  FSDP_TRY(const std::string model_path, find_model_file(plan.model_file, library, folder));
  FSDP_TRY(planned.spec, read_model_file(model_path));
  planned.workload = workload_of(plan);
  Errors errors;
  read_other_models(plan.also, library, planned.workload, errors, folder);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  Result<Model> model = build_model(planned.spec, planned.workload);
  if (!model) return tl::unexpected(placed_in_plan(std::move(model).error(), plan, plan_path));
  planned.model = *std::move(model);
  return planned;
}

Result<std::vector<Dimension>> own_sizes_of(const Plan& plan, const ModelSpec& spec) {
  Workload workload = workload_of(plan);
  workload.dimensions.clear();
  std::optional<Model> model;
  for (const Dimension& wanted : plan.dimensions) {
    if (!model) {
      FSDP_TRY(model, build_model(spec, workload));
    }
    const Dimension* found = find_dimension(model->dimensions, wanted.name);
    if (found != nullptr && found->value == wanted.value) continue;
    workload.dimensions.push_back(wanted);
    model.reset();  // Dependent values change with it.
  }
  return std::move(workload.dimensions);
}

}  // namespace fsdp
