// What `accelerate launch` itself refuses, or starts otherwise than it is written.
//
// Sources: accelerate 1.15.0, commands/launch.py (_validate_launch_command), commands/config/config_args.py
// (process_config), utils/launch.py (prepare_multi_gpu_env), parallelism_config.py (_validate_accelerator);
// transformers 5.24.0, training_args.py (IntervalStrategy).

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "planner/check/rules.h"

namespace fsdp::planner {

namespace {

constexpr ConfigurationKind kLaunch = ConfigurationKind::Launch;

/// A file of accelerate, not a line alone.
bool has_launch_file(const CheckedRun& run) {
  const auto& layers = run.layers_of(kLaunch);
  return std::any_of(layers.begin(), layers.end(),
                     [](const JsonDocument* layer) { return layer->name != "command" && !layer->is_translated; });
}

FindingPlace top_of(const CheckedRun& run) {
  return place_in(*run.layers_of(kLaunch).back(), 0);
}

std::int64_t size_of(const CheckedRun& run, std::string_view axis) {
  return run.launch(fmt::format("parallelism_config.parallelism_config_{}_size", axis)).integer().value_or(1);
}

}  // namespace

void find_missing_launch_keys(const CheckedRun& run, Reporter& report) {
  if (!has_launch_file(run)) return;
  const Setting type = run.launch("distributed_type");
  if (!type) {
    advise(report.add(Severity::Error, top_of(run), "accelerate refuses a file without distributed_type."),
           "Add distributed_type: FSDP, DEEPSPEED, MULTI_GPU or 'NO'.");
  } else if (!run.launch("num_processes") && type.upper() != "NO" && type.text() != "false") {
    advise(report.add(Severity::Error, type, "accelerate refuses to launch without num_processes."),
           "Add num_processes: the GPUs of all machines.");
  }
}

void find_unquoted_no(const CheckedRun& run, Reporter& report) {
  const auto is_false = [](const Setting& setting) {
    return setting && setting.value->type == JsonType::Bool && !setting.value->boolean;
  };
  if (const Setting precision = run.launch("mixed_precision"); is_false(precision)) {
    replace(report.add(Severity::Error, precision,
                       "YAML reads no without quotes as false, and the launch ends with \"'bool' object has no "
                       "attribute 'lower'\"."),
            precision, "'no'");
  }
  for (const std::string_view key : {"eval_strategy", "save_strategy", "logging_strategy"}) {
    const Setting strategy = run.trainer(key);
    if (!is_false(strategy)) continue;
    replace(report.add(Severity::Error, strategy,
                       "YAML reads no without quotes as false, and the Trainer ends with \"False is not a valid\" "
                       "strategy."),
            strategy, "'no'");
  }
}

void find_unused_sections(const CheckedRun& run, Reporter& report) {
  const Setting type = run.launch("distributed_type");
  if (!type) return;
  for (const auto& [section, of] : {std::pair("fsdp_config", "FSDP"), std::pair("deepspeed_config", "DEEPSPEED")}) {
    const Setting found = run.launch(section);
    if (!found || found.value->members.empty() || type.upper() == of) continue;
    const std::string written = type.value->type == JsonType::Bool ? "NO" : type.text();
    replace(report.add(Severity::Error, type,
                       fmt::format("With distributed_type: {} accelerate ignores {}.", written, section)),
            type, of);
  }
}

void find_uneven_processes(const CheckedRun& run, Reporter& report) {
  const std::optional<std::int64_t> processes = run.processes();
  if (!processes || *processes % run.machines() == 0) return;
  const std::int64_t each = *processes / run.machines();
  const Setting at = run.launch("num_processes");
  replace(report.add(Severity::Error, at,
                     fmt::format("accelerate starts {} on each of {} machines, {} in all instead of {}.", each,
                                 run.machines(), each * run.machines(), *processes)),
          at, std::to_string((each + 1) * run.machines()));
}

void find_few_gpu_ids(const CheckedRun& run, Reporter& report) {
  const Setting ids = run.launch("gpu_ids");
  const std::string text = ids.text();
  if (!ids || text == "all" || text.empty() || !run.processes()) return;
  const auto listed = 1 + std::count(text.begin(), text.end(), ',');
  const std::int64_t each = *run.processes() / run.machines();
  if (each <= listed) return;
  replace(report.add(Severity::Error, ids,
                     fmt::format("{} processes of a machine see {}, and the others find no GPU.", each,
                                 listed == 1 ? "one GPU" : fmt::format("{} GPUs", listed))),
          ids, "all");
}

void find_mesh_mismatch(const CheckedRun& run, Reporter& report) {
  const Setting mesh = run.launch("parallelism_config");
  if (!mesh || mesh.value->members.empty() || !run.processes()) return;
  const std::int64_t sequence = size_of(run, "sp");
  const std::string backend = run.launch("parallelism_config.parallelism_config_sp_backend").text();
  if (sequence > 1 && (backend.empty() || backend == "deepspeed")) return;  // DeepSpeed makes its own groups.
  // A double: sizes may be slips of any length.
  auto total = static_cast<double>(sequence);
  for (const std::string_view axis : {"dp_replicate", "dp_shard", "tp", "cp"}) {
    total *= static_cast<double>(size_of(run, axis));
  }
  if (total == 1 || total == static_cast<double>(*run.processes())) return;
  advise(report.add(Severity::Error, mesh,
                    fmt::format("The sizes multiply to {:.0f}, and accelerate refuses that with {} processes.", total,
                                *run.processes())),
         fmt::format("Write sizes whose product is {}, or num_processes: {:.0f}.", *run.processes(), total));
}

void find_mesh_without_shard(const CheckedRun& run, Reporter& report) {
  const Setting mesh = run.launch("parallelism_config");
  if (!mesh || mesh.value->members.empty() || !run.launches_fsdp() || run.fsdp_version() != 2) return;
  if (size_of(run, "dp_shard") > 1 || size_of(run, "cp") > 1) return;
  advise(report.add(Severity::Error, mesh, "FSDP2 has no axis to shard over, and accelerate refuses that."),
         "Write parallelism_config_dp_shard_size above 1, or distributed_type: MULTI_GPU.");
}

}  // namespace fsdp::planner
