#include "core/model_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/files.h"
#include "core/nearest.h"
#include "core/version.h"

namespace fsdp {

namespace {

constexpr std::string_view kEnding = ".json";

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

std::string library_of_process() {
  if (const char* folder = std::getenv("FSDP_PLAN_MODEL_SPECS"); folder != nullptr && folder[0] != '\0') return folder;
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
    if (name.size() > kEnding.size() && name.ends_with(kEnding)) {
      names.push_back(name.substr(0, name.size() - kEnding.size()));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> find_model_file(const std::string& argument, const std::string& library, const std::string& near) {
  if (argument == "-" || is_there(argument)) return argument;
  if (!near.empty() && is_there(std::filesystem::path(near) / argument)) {
    return (std::filesystem::path(near) / argument).string();
  }
  const bool is_path = argument.find('/') != std::string::npos;
  if (!is_path) {
    const std::string name =
        argument.ends_with(kEnding) ? argument.substr(0, argument.size() - kEnding.size()) : argument;
    const std::vector<std::string> names = model_names(library);
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return (std::filesystem::path(library) / (name + std::string(kEnding))).string();
    }
    if (!argument.ends_with(kEnding)) {
      const std::optional<std::string> nearest = nearest_name(name, names);
      return failure(argument, "There is no such file, and no such model is shipped.",
                     nearest ? fmt::format("Did you mean \"{}\"?", *nearest)
                             : "Run \"fsdp-plan models\" for the names of the models.");
    }
  }
  // The reader's own message says what is there instead.
  const Result<std::string> text = read_text_file(argument);
  if (!text) return tl::unexpected(text.error());
  return argument;
}

Result<PlannedModel> model_of_plan(const Plan& plan, const std::string& plan_path, const std::string& library) {
  if (plan.model_file == "-") {
    return failure(plan_path + ": /model/file", "The model was read from the standard input.",
                   "Save the model and write its file name here.");
  }
  const std::string folder = std::filesystem::path(plan_path).parent_path().string();
  PlannedModel planned;
  FSDP_TRY(const std::string model_path, find_model_file(plan.model_file, library, folder));
  FSDP_TRY(planned.spec, read_model_spec(model_path));
  planned.workload = {
      .recipe = plan.recipe, .dimensions = plan.dimensions, .trainable = plan.trainable, .frozen = plan.frozen};
  FSDP_TRY(planned.model, build_model(planned.spec, planned.workload));
  return planned;
}

}  // namespace fsdp
