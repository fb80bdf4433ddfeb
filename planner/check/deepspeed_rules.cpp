// Configurations of DeepSpeed, as a file of their own and as accelerate's keys.
//
// Sources: DeepSpeed 0.19.8, runtime/config.py (_reject_removed_config_keys, _batch_assertion), zero/config.py,
// zero/stage_1_and_2.py (a second buffer with overlap_comm and contiguous_gradients); accelerate 1.15.0,
// utils/dataclasses.py (DeepSpeedPlugin: __post_init__, set_mixed_precision, _deepspeed_config_checks); transformers
// 5.24.0, integrations/deepspeed.py (HfTrainerDeepSpeedConfig).

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/formats/deepspeed_keys.h"
#include "planner/check/rules.h"

namespace fsdp::planner {

namespace {

constexpr ConfigurationKind kDeepSpeed = ConfigurationKind::DeepSpeed;

bool is_set(const Setting& setting) {
  return setting && !setting.is("auto");
}

void find_removed_in(const JsonDocument& document, const JsonValue* object, std::span<const DeepSpeedKey> table,
                     Reporter& report) {
  if (object == nullptr) return;
  for (const JsonMember& member : object->members) {
    for (const DeepSpeedKey& row : table) {
      if (row.name != member.key || row.meaning != DeepSpeedMeaning::Removed) continue;
      remove(report.add(Severity::Error, place_of(document, member),
                        fmt::format("DeepSpeed ends with an error: {} was removed.", member.key)),
             {member.key, nullptr, nullptr});
    }
  }
}

/// A value of DeepSpeed's and the Trainer's argument that it must equal, with its default in TRL.
struct MatchedValue {
  std::string_view deepspeed;
  std::string_view trainer;
  std::string_view in_trl;
};
constexpr MatchedValue kMatched[] = {
    {"train_micro_batch_size_per_gpu", "per_device_train_batch_size", "8"},
    {"gradient_accumulation_steps", "gradient_accumulation_steps", "1"},
    {"gradient_clipping", "max_grad_norm", "1"},
    {"optimizer.params.lr", "learning_rate", {}},
    {"optimizer.params.weight_decay", "weight_decay", {}},
    {"bf16.enabled", "bf16", {}},
    {"fp16.enabled", "fp16", {}},
};

bool differs(const Setting& ours, const std::string& theirs) {
  Setting other = ours;
  JsonValue value;
  value.type = JsonType::String;
  value.text = theirs;
  other.value = &value;
  if (ours.number() && other.number()) return ours.number() != other.number();
  if (ours.flag() && other.flag()) return ours.flag() != other.flag();
  return ours.text() != theirs;
}

void report_mismatch(const Setting& ours, const MatchedValue& row, const CheckedRun& run, Reporter& report) {
  const Setting theirs = run.trainer(row.trainer);
  const std::string value = theirs ? theirs.text() : run.is_trl ? std::string(row.in_trl) : "";
  if (!is_set(ours) || value.empty() || !differs(ours, value)) return;
  advise(report.add(Severity::Error, ours,
                    fmt::format("The Trainer refuses it, because its {} is {}{}.", row.trainer, value,
                                theirs ? "" : " by default")),
         fmt::format("Write {}: {}, or auto in a file of DeepSpeed.", ours.key, value));
}

}  // namespace

void find_removed_keys(const CheckedRun& run, Reporter& report) {
  for (const JsonDocument* document : run.layers_of(kDeepSpeed)) {
    find_removed_in(*document, &document->root, deepspeed_keys(), report);
    find_removed_in(*document, document->root.find("zero_optimization"), deepspeed_zero_keys(), report);
  }
}

void find_zero3_init(const CheckedRun& run, Reporter& report) {
  const Setting init = run.launch("deepspeed_config.zero3_init_flag");
  if (!init.is_on() || run.zero_stage() == 3 || run.zero_stage() < 0) return;
  replace(report.add(Severity::Note, init, fmt::format("accelerate sets it to false under ZeRO-{}.", run.zero_stage())),
          init, "false");
}

void find_stage3_keys(const CheckedRun& run, Reporter& report) {
  if (run.zero_stage() == 3) return;
  for (const JsonDocument* document : run.layers_of(kDeepSpeed)) {
    const JsonValue* zero = document->root.find("zero_optimization");
    if (zero == nullptr) continue;
    for (const JsonMember& member : zero->members) {
      if (!member.key.starts_with("stage3_")) continue;
      remove(report.add(Severity::Note, place_of(*document, member),
                        fmt::format("ZeRO-{} ignores {}.", run.zero_stage(), member.key)),
             {member.key, nullptr, nullptr});
    }
  }
}

void find_offload_without_stage3(const CheckedRun& run, Reporter& report) {
  const int stage = run.zero_stage();
  if (stage < 0 || stage == 3) return;
  const std::string instead = "Write stage 3, or none.";
  for (const Setting& device :
       {run.deepspeed("zero_optimization.offload_param.device"), run.launch("deepspeed_config.offload_param_device")}) {
    if (!device.is("cpu") && !device.is("nvme")) continue;
    advise(report.add(Severity::Error, device,
                      fmt::format("ZeRO-{} keeps all parameters on each GPU and offloads none.", stage)),
           instead);
  }
  for (const Setting& device : {run.deepspeed("zero_optimization.offload_optimizer.device"),
                                run.launch("deepspeed_config.offload_optimizer_device")}) {
    if (!device.is("nvme")) continue;
    advise(report.add(Severity::Error, device, fmt::format("ZeRO-{} offloads to host memory alone.", stage)),
           "Write cpu, or stage 3.");
  }
  const Setting ratio = run.deepspeed("zero_optimization.offload_optimizer.ratio");
  if (ratio.number().value_or(1) < 1) {
    advise(report.add(Severity::Error, ratio, "DeepSpeed refuses to offload a part of the optimizer below stage 3."),
           "Write 1, or stage 3.");
  }
}

void find_two_precisions(const CheckedRun& run, Reporter& report) {
  const Setting fp16 = run.deepspeed("fp16.enabled");
  if (!fp16.is_on() || !run.deepspeed("bf16.enabled").is_on()) return;
  replace(report.add(Severity::Error, fp16, "DeepSpeed refuses fp16 beside bf16."), fp16, "false");
}

void find_launch_precision(const CheckedRun& run, Reporter& report) {
  const Setting launch = run.launch("mixed_precision");
  if (!launch || run.has(ConfigurationKind::Trainer)) return;
  for (const auto& [mine, other] : {std::pair("bf16", "fp16"), std::pair("fp16", "bf16")}) {
    const Setting enabled = run.deepspeed(fmt::format("{}.enabled", other));
    if (!launch.is(mine) || !enabled.is_on()) continue;
    replace(
        report.add(Severity::Error, enabled,
                   fmt::format("accelerate refuses mixed_precision: {} beside a file that enables {}.", mine, other)),
        enabled, "false");
  }
}

void find_deepspeed_batches(const CheckedRun& run, Reporter& report) {
  const Setting train = run.deepspeed("train_batch_size");
  const std::optional<std::int64_t> micro = run.deepspeed("train_micro_batch_size_per_gpu").integer();
  const std::optional<std::int64_t> steps = run.deepspeed("gradient_accumulation_steps").integer();
  if (!train.integer() || !micro || !steps || !run.processes()) return;
  const double product =
      static_cast<double>(*micro) * static_cast<double>(*steps) * static_cast<double>(*run.processes());
  if (product == static_cast<double>(*train.integer())) return;
  replace(report.add(Severity::Error, train,
                     fmt::format("DeepSpeed refuses it: {} x {} x {} GPUs are {:.0f}.", *micro, *steps,
                                 *run.processes(), product)),
          train, fmt::format("{:.0f}", product));
}

void find_trainer_mismatch(const CheckedRun& run, Reporter& report) {
  if (!run.has(ConfigurationKind::Trainer) || !run.uses_deepspeed()) return;
  for (const MatchedValue& row : kMatched) report_mismatch(run.deepspeed(row.deepspeed), row, run, report);
  const Setting file = run.launch("deepspeed_config.deepspeed_config_file");
  const Setting steps = run.trainer("gradient_accumulation_steps");
  const bool lacks_steps = run.has(kDeepSpeed) && !run.deepspeed("gradient_accumulation_steps");
  if (file && lacks_steps && steps.integer().value_or(1) > 1) {
    advise(report.add(Severity::Error, file,
                      fmt::format("accelerate takes the missing gradient_accumulation_steps for 1, and the Trainer "
                                  "refuses that with its own {}.",
                                  steps.text())),
           "Write \"gradient_accumulation_steps\": \"auto\" in the file.");
  }
  if (run.has(kDeepSpeed)) return;
  for (const MatchedValue& row : kMatched) {
    if (row.deepspeed == "gradient_accumulation_steps" || row.deepspeed == "gradient_clipping") {
      report_mismatch(run.launch(fmt::format("deepspeed_config.{}", row.deepspeed)), row, run, report);
    }
  }
}

void find_fields_beside_file(const CheckedRun& run, Reporter& report) {
  if (!run.launch("deepspeed_config.deepspeed_config_file")) return;
  constexpr std::string_view kRefused[] = {
      "gradient_accumulation_steps", "gradient_clipping",    "zero_stage",
      "offload_optimizer_device",    "offload_param_device", "offload_param_nvme_path",
      "zero3_save_16bit_model"};
  const std::string what = "accelerate refuses it beside deepspeed_config_file, which has to say it.";
  for (const std::string_view key : kRefused) {
    const Setting field = run.launch(fmt::format("deepspeed_config.{}", key));
    if (field && field.document->name != "command") remove(report.add(Severity::Error, field, what), field);
  }
  const Setting precision = run.launch("mixed_precision");
  if (precision && precision.document->name != "command" && precision.value->type == JsonType::String) {
    remove(report.add(Severity::Error, precision, what), precision);
  }
}

void find_second_bucket(const CheckedRun& run, Reporter& report) {
  const Setting overlap = run.deepspeed("zero_optimization.overlap_comm");
  const int stage = run.zero_stage();
  if ((stage != 1 && stage != 2) || !overlap.is_on()) return;
  if (run.deepspeed("zero_optimization.contiguous_gradients").flag() == false) return;
  const Setting bucket = run.deepspeed("zero_optimization.reduce_bucket_size");
  constexpr std::int64_t kUnset = 500'000'000;
  if (bucket && !bucket.integer()) return;
  Finding& found = report.add(Severity::Note, overlap, "Gradients are collected in two buffers instead of one.");
  constexpr std::int64_t kBytes = 2;
  costs(found, kBytes * bucket.integer().value_or(kUnset), "on each GPU for the second buffer, in 16 bits");
  advise(found, "Write a smaller reduce_bucket_size if memory is short.");
}

}  // namespace fsdp::planner
