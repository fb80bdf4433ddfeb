// schema, models, gpus, doctor and completions: descriptions of the program and its library.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_help.h"
#include "command/cli_request.h"
#include "core/base/files.h"
#include "core/base/nearest.h"
#include "core/base/parse_units.h"
#include "core/cluster/cluster_library.h"
#include "core/cluster/cluster_reader.h"
#include "core/cluster/measurements.h"
#include "core/library/model_file.h"
#include "core/library/model_library.h"
#include "core/model/model_json.h"
#include "core/plan/plan_json.h"
#include "core/report/report_json.h"
#include "core/spec/captured_model.h"
#include "core/spec/model_schema.h"
#include "core/spec/model_spec.h"
#include "core/version.h"
#include "render/render_plan.h"
#include "runs/execute_ranks.h"
#include "runs/rehearse_plan.h"
#include "runs/rehearse_settings.h"
#include "text/figures.h"

namespace fsdp::command {

namespace {

struct Schema {
  std::string_view name;
  std::string_view describes;
  std::string (*text)();
};
constexpr Schema kSchemas[] = {{"model", "a model spec", model_schema},
                               {"cluster", "a cluster or a GPU", cluster_schema},
                               {"measurements", "measurements on a GPU", measurements_schema},
                               {"plan", "a plan, as -o writes it", plan_schema},
                               {"report", "a report, as --json prints it", report_schema}};

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void print(const text::Table& table, const Output& output) {
  if (output.format == text::Format::Json) {
    output.console.out << to_json(table);
  } else {
    output.print({table});
  }
}

/// One thing that the doctor checks.
struct Check {
  std::string what;
  bool found = false;
  std::string detail;
  bool is_needed = false;  ///< Planning needs it.
};

/// The first existing path.
std::string first_of(std::initializer_list<const char*> paths) {
  for (const char* path : paths) {
    if (is_there(path)) return path;
  }
  return "";
}

/// A program in the folder of this one; empty if there is none.
std::string beside_this_program(std::string_view name) {
  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (executable.parent_path() / name).string();
  return !error && is_there(path) ? path : "";
}

std::vector<Check> checks(const Output& output) {
  const std::string& library = output.console.library;
  std::vector<Check> found;
  const std::size_t models = model_names(library).size();
  found.push_back({"model specs", models > 0, fmt::format("{} in {}", models, library), true});
  const Result<ClusterLibrary> clusters = read_cluster_library(library + "/clusters");
  found.push_back({"clusters", clusters.has_value(),
                   clusters
                       ? fmt::format("{}, {}", text::counted(static_cast<std::int64_t>(clusters->gpus.size()), "GPU"),
                                     text::counted(static_cast<std::int64_t>(clusters->clusters.size()), "cluster"))
                       : to_string(clusters.error().front()),
                   true});
  bool schemas = true;
  for (const Schema& each : kSchemas) {
    schemas = schemas && is_there(fmt::format("{}/schemas/{}.schema.json", library, each.name));
  }
  found.push_back({"schemas", schemas, library + "/schemas", true});
  const Result<std::string> executor = runs::find_executor();
  found.push_back(
      {"executor", executor.has_value(), executor ? *executor : "not built: see ./scripts/bootstrap --help"});
  const runs::RehearsalPlaces places = runs::rehearsal_places_of_process();
  Errors missing;
  runs::check_places(places, true, missing);
  found.push_back({"stub GPU", missing.empty(), missing.empty() ? places.stub : to_string(missing.front())});
  const Result<std::string> python = runs::find_torch_python("", places);
  found.push_back({"Python with torch", python.has_value(),
                   python ? *python : "only to rehearse plans: ./scripts/bootstrap --with rehearsal"});
  const std::string window = beside_this_program("fsdp-plan-gui");
  found.push_back({"window", !window.empty(), window.empty() ? "not built: see ./scripts/bootstrap --help" : window});
  // Planning needs none of the following: a GPU and its libraries matter when a plan runs.
  const std::string driver = first_of({"/proc/driver/nvidia/version"});
  found.push_back({"NVIDIA driver", !driver.empty(), driver.empty() ? "not needed to plan" : driver});
  const std::string gpu = first_of({"/dev/nvidia0"});
  found.push_back({"GPU", !gpu.empty(), gpu.empty() ? "not needed to plan" : gpu});
  const std::string nccl =
      first_of({"/usr/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/lib/aarch64-linux-gnu/libnccl.so.2",
                "/usr/local/lib/libnccl.so.2", "/usr/lib64/libnccl.so.2"});
  found.push_back({"NCCL", !nccl.empty(), nccl.empty() ? "not needed to plan" : nccl});
  return found;
}

}  // namespace

CommandResult schema_command(const CommandLine& line, const Output& output) {
  if (line.arguments.empty()) {
    text::Table table{.name = "schemas", .columns = {{"name", "name"}, {"describes", "describes"}}};
    for (const Schema& each : kSchemas) table.rows.push_back({std::string(each.name), std::string(each.describes)});
    print(table, output);
    return kExitYes;
  }
  const std::string& name = line.arguments.front();
  std::vector<std::string_view> known;
  for (const Schema& each : kSchemas) {
    known.push_back(each.name);
    if (each.name != name) continue;
    output.console.out << each.text();
    return kExitYes;
  }
  return input_failure({{"schema", fmt::format("There is no schema \"{}\".", name), suggest_name(name, known)}});
}

namespace {

/// One model with all its sizes as numbers.
CommandResult print_expanded(const CommandLine& line, const Output& output) {
  if (line.arguments.empty()) {
    return input_failure(
        {{"--expanded", "It writes out one model, and none is named.", "Write fsdp-plan models NAME --expanded."}});
  }
  Errors errors;
  const planner::PlanChoices choices = read_choices(line, errors).choices;
  Workload workload = workload_of(choices, errors);
  Plan plan;
  planner::apply_work_choices(choices, plan, errors);
  apply_implementations(plan.runtime.implementations, workload);
  if (!errors.empty()) return input_failure(std::move(errors));
  const Result<std::string> path = find_model_file(line.arguments.front(), output.console.library);
  const Result<ModelSpec> spec = path ? read_model_file(*path) : tl::unexpected(path.error());
  const Result<Model> model = spec ? build_model(*spec, workload) : tl::unexpected(spec.error());
  if (!model) return input_failure(model.error());
  if (auto refused = refuse_captured(*spec)) return input_failure({*std::move(refused)});
  output.console.out << expanded_model_text(*model);
  return kExitYes;
}

}  // namespace

CommandResult models_command(const CommandLine& line, const Output& output) {
  if (line.has(Option::Expanded)) return print_expanded(line, output);
  Errors unused;
  for (const Option option :
       {Option::Recipe, Option::Batch, Option::Sequence, Option::SetDimension, Option::Trainable, Option::Freeze,
        Option::Lora, Option::Quantize, Option::Liger, Option::Float8, Option::Flavor}) {
    if (line.has(option)) {
      unused.push_back({std::string(flag_of(option)), "It does not apply to the list of models.",
                        "Name a model and add --expanded."});
    }
  }
  if (!line.arguments.empty()) {
    unused.push_back({line.arguments.front(), "models lists all models.",
                      "Add --expanded to write this one out, or plan it with \"fsdp-plan MODEL\"."});
  }
  if (!unused.empty()) return input_failure(std::move(unused));
  text::Table table{.name = "models",
                    .columns = {{"name", "name"}, {"parameters", "parameters", true}, {"recipes", "recipes"}}};
  Errors errors;
  for (const std::string& name : model_names(output.console.library)) {
    const Result<ModelSpec> spec = read_model_spec(fmt::format("{}/{}.json", output.console.library, name));
    const Result<Model> model = spec ? build_model(*spec) : tl::unexpected(spec.error());
    if (!model) {
      append(errors, model.error());
      continue;
    }
    std::string recipes;
    for (const Recipe& recipe : spec->recipes) recipes += (recipes.empty() ? "" : ", ") + recipe.name;
    table.rows.push_back(
        {name, {text::grouped(num_parameters(*model)), fmt::format("{}", num_parameters(*model))}, recipes});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  if (table.rows.empty()) {
    return input_failure({{output.console.library, "There are no model specs in this folder.",
                           "Set FSDP_PLAN_MODEL_SPECS to the folder that has them."}});
  }
  print(table, output);
  return kExitYes;
}

CommandResult gpus_command(const CommandLine& /*line*/, const Output& output) {
  const Result<ClusterLibrary> library = read_cluster_library(output.console.library + "/clusters");
  if (!library) return input_failure(library.error());
  text::Table gpus{.name = "gpus",
                   .columns = {{"GPU", "gpu"},
                               {"memory", "memory_bytes", true},
                               {"bandwidth", "memory_bandwidth", true},
                               {"bf16", "bf16", true},
                               {"in a node", "intra_node"}}};
  for (const Gpu& gpu : library->gpus) {
    gpus.rows.push_back({gpu.name,
                         text::cell(gpu.usable_memory.value),
                         {format_bandwidth(gpu.memory_bandwidth.value), shortest(gpu.memory_bandwidth.value.count())},
                         gpu.bf16 ? text::Cell{format_flops_rate(gpu.bf16->value), shortest(gpu.bf16->value.count())}
                                  : text::Cell{"none", ""},
                         std::string(describe(gpu.intra_node.kind))});
  }
  text::Table clusters{
      .name = "clusters",
      .columns = {
          {"cluster", "cluster"}, {"nodes", "nodes", true}, {"GPUs each", "gpus_per_node", true}, {"GPU", "gpu"}}};
  for (const Cluster& cluster : library->clusters) {
    clusters.rows.push_back({cluster.name, text::cell(std::int64_t{cluster.nodes}),
                             text::cell(std::int64_t{cluster.gpus_per_node}), cluster.gpu.name});
  }
  if (output.format == text::Format::Json) {
    print(gpus, output);
  } else {
    output.print({gpus, clusters});
  }
  return kExitYes;
}

CommandResult doctor_command(const CommandLine& /*line*/, const Output& output) {
  text::Table table{.name = "doctor", .columns = {{"part", "part"}, {"state", "state"}, {"detail", "detail"}}};
  table.rows.push_back({"fsdp-plan", {"ok", "ok", text::Style::Good}, std::string(kVersion)});
  bool can_plan = true;
  for (const Check& check : checks(output)) {
    can_plan = can_plan && (check.found || !check.is_needed);
    const text::Cell state = check.found       ? text::Cell{"ok", "ok", text::Style::Good}
                             : check.is_needed ? text::Cell{"missing", "missing", text::Style::Bad}
                                               : text::Cell{"none", "none", text::Style::Faint};
    table.rows.push_back({check.what, state, check.detail});
  }
  print(table, output);
  return can_plan ? kExitYes : kExitNo;
}

CommandResult completions_command(const CommandLine& line, const Output& output) {
  const Result<std::string> script = completions(line.arguments.front());
  if (!script) return input_failure(script.error());
  output.console.out << *script;
  return kExitYes;
}

}  // namespace fsdp::command
