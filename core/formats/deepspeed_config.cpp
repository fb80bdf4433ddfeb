// DeepSpeed silently ignores unknown keys at the top of the file, so that a slip in a key trains something else. Here
// every key is known (used; without effect on memory or time; predicted with one value only; or removed from
// DeepSpeed), listed as one that DeepSpeed ignores, or refused as a slip. transformers' Trainer and accelerate fill in
// "auto" from arguments outside of the file. If the user chooses such a value by an option, it stays unset; three sizes
// of ZeRO's buffers follow from the model's width, which the reader of the model knows.
//
// Sources: deepspeed/runtime/config.py (DeepSpeedConfig), config_utils.py (DeepSpeedConfigModel), zero/config.py,
// engine.py (_configure_basic_optimizer), DeepSpeed 0.19.8; transformers/integrations/deepspeed.py
// (trainer_config_finalize), accelerate/accelerator.py (_prepare_deepspeed) for "auto".
//
// Not modeled: Hjson, which DeepSpeed reads (comments, and keys without quotes); a configuration as base64.

#include "core/formats/deepspeed_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <span>

#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/nearest.h"
#include "core/base/object_reader.h"
#include "core/formats/deepspeed_keys.h"
#include "core/plan/framework_traits.h"

namespace fsdp {

namespace {

// The limits of a plan.
constexpr IntegerRange kSamples{1, std::int64_t{1} << 31};
constexpr IntegerRange kBucket{1, std::int64_t{1} << 40};
constexpr std::int64_t kMostOfConfig = std::int64_t{1} << 50;
constexpr IntegerRange kElements{0, kMostOfConfig};

bool is_auto(const JsonValue& value) {
  return value.type == JsonType::String && value.text == "auto";
}

bool is_off(const JsonValue& value) {
  return value.type == JsonType::Null || (value.type == JsonType::Bool && !value.boolean);
}

bool says(const JsonValue& value, std::string_view usual) {
  switch (value.type) {
    case JsonType::Null:
      return usual == "null";
    case JsonType::Bool:
      return usual == (value.boolean ? "true" : "false");
    case JsonType::Number:
      return usual == fmt::format("{}", value.real);
    case JsonType::String:
      return usual == json_quoted(value.text);
    default:
      return false;
  }
}

class DeepSpeedReader {
 public:
  explicit DeepSpeedReader(const JsonDocument& document) : document_(document), errors_(document) {}

  Result<DeepSpeedConfig> read() && {
    const JsonValue& root = document_.root;
    if (!expect_type(root, JsonType::Object, "DeepSpeed's configuration, an object", errors_)) {
      return std::move(errors_).result(config_);
    }
    check_keys(root, deepspeed_keys(), "");
    read_zero(root.find("zero_optimization"));
    config_.train_batch = count(root, "train_batch_size", kSamples);
    config_.micro_batch = count(root, "train_micro_batch_size_per_gpu", kSamples);
    config_.accumulation = count(root, "gradient_accumulation_steps", IntegerRange{1, kMostMicroBatches});
    read_clipping(root.find("gradient_clipping"));
    read_precision(root);
    read_optimizer(root.find("optimizer"));
    for (const auto& [key, keys] : {std::pair("data_types", deepspeed_dtype_keys()),
                                    std::pair("activation_checkpointing", deepspeed_checkpointing_keys()),
                                    std::pair("aio", deepspeed_aio_keys())}) {
      const JsonValue* part = root.find(key);
      if (part != nullptr && expect_type(*part, JsonType::Object, "an object", errors_)) check_keys(*part, keys, key);
    }
    return std::move(errors_).result(std::move(config_));
  }

 private:
  void check_keys(const JsonValue& object, std::span<const DeepSpeedKey> keys, std::string_view part) {
    std::size_t num_unknown = 0;
    for (const JsonMember& member : object.members) {
      const auto known =
          std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return key.name == member.key; });
      if (known != keys.end()) {
        check_value(member, *known);
        continue;
      }
      // Only the first of hundreds of errors are printed; the rest need no hint.
      if (++num_unknown > kMostErrors) {
        errors_.add(member.key_offset, "DeepSpeed has no such key.");
        continue;
      }
      std::vector<std::string_view> names;
      for (const DeepSpeedKey& key : keys) names.push_back(key.name);
      const auto close = nearest_name(member.key, names);
      if (!close && part.empty()) {
        config_.ignored.push_back(member.key);
        continue;
      }
      errors_.add(member.key_offset,
                  fmt::format("DeepSpeed has no key {}{}.", json_quoted(member.key),
                              part.empty() ? std::string() : fmt::format(" in \"{}\"", part)),
                  close ? fmt::format("Did you mean \"{}\"?", *close) : std::string("Leave it out."));
    }
  }

  void check_value(const JsonMember& member, const DeepSpeedKey& key) {
    const JsonValue& value = member.value;
    const auto refuse = [&](std::string what, std::string hint) {
      errors_.add(member.key_offset, std::move(what), std::move(hint));
    };
    switch (key.meaning) {
      case DeepSpeedMeaning::Read:
      case DeepSpeedMeaning::Free:
        return;
      case DeepSpeedMeaning::Ignored:
        config_.ignored.push_back(member.key);
        return;
      case DeepSpeedMeaning::Usual:
        if (says(value, key.usual) || is_auto(value)) return;
        return refuse(fmt::format("\"{}\" is predicted only as {}, found {}.", key.name, key.usual, describe(value)),
                      "Rehearse the script: fsdp-plan rehearse -- deepspeed train.py.");
      case DeepSpeedMeaning::Disabled:
      case DeepSpeedMeaning::Absent: {
        if (is_off(value) || is_disabled(value, key.meaning)) return;
        return refuse(fmt::format("\"{}\" is not predicted.", key.name),
                      "Leave it out, or rehearse the script: fsdp-plan rehearse -- deepspeed train.py.");
      }
      case DeepSpeedMeaning::Removed:
        return refuse(fmt::format("DeepSpeed has removed \"{}\", and ends with an error.", key.name), "Leave it out.");
    }
  }

  static bool is_disabled(const JsonValue& value, DeepSpeedMeaning meaning) {
    if (value.type != JsonType::Object) return false;
    if (value.members.empty()) return true;
    const JsonValue* enabled = value.find("enabled");
    if (enabled == nullptr) return meaning == DeepSpeedMeaning::Disabled;
    return is_off(*enabled) || is_auto(*enabled);
  }

  /// A whole number in `range`, also as 5e8. `nullopt` if it is missing, "auto", or wrong, which adds an error.
  std::optional<std::int64_t> count(const JsonValue& object, std::string_view key, IntegerRange range) {
    const JsonValue* value = object.find(key);
    if (value == nullptr || is_auto(*value)) return std::nullopt;
    const bool is_whole = value->type == JsonType::Number && std::floor(value->real) == value->real;
    const bool is_inside =
        value->real >= static_cast<double>(range.min) && value->real <= static_cast<double>(range.max);
    if (is_whole && is_inside) return static_cast<std::int64_t>(value->real);
    errors_.add(*value, fmt::format("Expected a whole number from {} to {}, found {}.", range.min, range.max,
                                    describe(*value)));
    return std::nullopt;
  }

  std::optional<bool> flag(const JsonValue& object, std::string_view key) {
    const JsonValue* value = object.find(key);
    bool read = false;
    if (value == nullptr || is_auto(*value) || !read_json(*value, read, errors_)) return std::nullopt;
    return read;
  }

  void read_zero(const JsonValue* zero) {
    const std::string stages = "Only stages 1 to 3 of ZeRO are predicted.";
    if (zero == nullptr) {
      errors_.add(document_.root, fmt::format("There is no \"zero_optimization\". {}", stages),
                  "DeepSpeed without ZeRO is nearest to --runtime ddp.");
      return;
    }
    if (!expect_type(*zero, JsonType::Object, "an object", errors_)) return;
    check_keys(*zero, deepspeed_zero_keys(), "zero_optimization");
    const JsonValue* stage = zero->find("stage");
    const bool is_stage = stage != nullptr && stage->is_integer && stage->integer >= 1 && stage->integer <= 3;
    if (!is_stage) {
      errors_.add(stage != nullptr ? *stage : *zero,
                  fmt::format("{} {}", stages,
                              stage != nullptr ? fmt::format("Found {}.", describe(*stage))
                                               : std::string("Without \"stage\" it is 0.")),
                  "DeepSpeed without ZeRO is nearest to --runtime ddp.");
    }
    const std::int64_t number = is_stage ? stage->integer : 2;
    stage_ = static_cast<int>(number);
    config_.framework = framework_of_stage(stage_);
    config_.zero = default_zero_options(config_.framework);
    read_buffers(*zero);
    if (const auto overlap = flag(*zero, "overlap_comm")) config_.zero.overlap_comm = *overlap;
    read_offload(*zero);
    const auto neighbors = count(*zero, "zero_hpz_partition_size", IntegerRange{0, kMostOfConfig});
    if (neighbors && stage_ == 3) config_.zero.hpz_partition_size = std::max<std::int64_t>(1, *neighbors);
    const auto weights = flag(*zero, "zero_quantized_weights");
    if (weights && stage_ == 3) config_.zero.quantized_weights = *weights;
    const auto gradients = flag(*zero, "zero_quantized_gradients");
    if (gradients && stage_ == 3) config_.zero.quantized_gradients = *gradients;
  }

  void read_buffers(const JsonValue& zero) {
    ZeroOptions& options = config_.zero;
    const bool is_zero3 = stage_ == 3;
    struct Size {
      std::string_view key;
      std::int64_t& value;
      IntegerRange range;
      bool* is_auto = nullptr;  ///< Set if transformers fills in "auto", but only under one of the keys:
      bool has_prefix = true;   ///< the prefixed one, or the plain one.
    };
    DeepSpeedAutoSizes& sizes = config_.auto_sizes;
    for (const Size& size :
         {Size{"reduce_bucket_size", options.reduce_bucket_size, kBucket, &sizes.reduce_bucket, false},
          Size{"prefetch_bucket_size", options.prefetch_bucket_size, kElements, &sizes.prefetch_bucket},
          Size{"param_persistence_threshold", options.param_persistence_threshold, kElements,
               &sizes.persistence_threshold},
          Size{"max_live_parameters", options.max_live_parameters, kElements},
          Size{"max_reuse_distance", options.max_reuse_distance, kElements},
          Size{"sub_group_size", options.sub_group_size, IntegerRange{1, kMostOfConfig}}}) {
      const std::string prefixed = fmt::format("stage3_{}", size.key);
      for (const std::string_view key : {size.key, std::string_view(prefixed)}) {
        const JsonValue* value = zero.find(key);
        if (value == nullptr) continue;
        const bool is_filled_in = size.is_auto != nullptr && (key == prefixed) == size.has_prefix;
        if (is_auto(*value) && is_filled_in) {
          *size.is_auto = is_zero3 || size.is_auto == &sizes.reduce_bucket;
        } else if (const auto read = count(zero, key, size.range);
                   read && (is_zero3 || size.key == "reduce_bucket_size")) {
          size.value = *read;
        }
      }
    }
    // It bounds the parameters that stay whole between steps; the default does not.
    for (const std::string_view key : {"model_persistence_threshold", "stage3_model_persistence_threshold"}) {
      const JsonValue* value = zero.find(key);
      if (value == nullptr || is_auto(*value)) continue;
      const bool is_unbounded = value->type == JsonType::Number && value->real > 1e15;
      if (!is_unbounded)
        errors_.add(*value, fmt::format("\"{}\" is predicted only without a bound.", key), "Leave it out.");
    }
  }

  struct Offload {
    const JsonValue* part = nullptr;  ///< Null if it is off.
    bool pin_memory = true;
    bool is_on_drive = false;
  };

  void read_offload(const JsonValue& zero) {
    const Offload optimizer = offload_of(zero, "offload_optimizer", deepspeed_offload_optimizer_keys());
    const Offload param = offload_of(zero, "offload_param", deepspeed_offload_param_keys());
    config_.offload = optimizer.part != nullptr;
    if (config_.offload) {
      config_.zero.pin_memory = optimizer.pin_memory;
      read_ratio(*optimizer.part);
    }
    read_drive(optimizer, param);
    if (param.part == nullptr) return;
    if (stage_ != 3) {
      errors_.add(*param.part, "Stages 1 and 2 keep the parameters whole on each GPU, and DeepSpeed ignores this.",
                  "Leave it out, or write stage 3.");
    } else if (!config_.offload) {
      errors_.add(*param.part, "\"offload_param\" is predicted only with \"offload_optimizer\".",
                  "Offload the optimizer, too, or leave it out.");
    } else if (param.pin_memory != optimizer.pin_memory) {
      errors_.add(*param.part, "\"pin_memory\" is predicted only with one value for parameters and optimizer.",
                  "Write the same in both.");
    } else {
      config_.zero.offload_param = true;
    }
  }

  void read_ratio(const JsonValue& optimizer) {
    const JsonValue* ratio = optimizer.find("ratio");
    double part = 1;
    if (ratio == nullptr || is_auto(*ratio) || !read_json(*ratio, part, errors_, RealRange{0, 1}) || part == 1) return;
    if (stage_ != 3) {
      errors_.add(*ratio, "Stages 1 and 2 have all of the optimizer on the host, and DeepSpeed ignores this.",
                  "Leave it out, or write stage 3.");
    } else {
      config_.zero.offload_ratio = part;
    }
  }

  Offload offload_of(const JsonValue& zero, std::string_view key, std::span<const DeepSpeedKey> keys) {
    const JsonValue* part = zero.find(key);
    if (part == nullptr || part->type == JsonType::Null || is_auto(*part)) return {};
    if (!expect_type(*part, JsonType::Object, "an object", errors_)) return {};
    check_keys(*part, keys, key);
    const JsonValue* device = part->find("device");
    if (device == nullptr || device->text == "none" || is_auto(*device)) return {};
    if (device->text != "cpu" && device->text != "nvme") {
      errors_.add(*device, fmt::format("Expected none, cpu or nvme, found {}.", describe(*device)), "Write cpu.");
      return {};
    }
    return {part, flag(*part, "pin_memory").value_or(true), device->text == "nvme"};
  }

  void read_drive(const Offload& optimizer, const Offload& param) {
    if (!optimizer.is_on_drive && !param.is_on_drive) return;
    if (stage_ != 3) {
      if (optimizer.is_on_drive) {
        errors_.add(*optimizer.part->find("device"),
                    "Stages 1 and 2 offload only to host memory, and DeepSpeed writes nothing to a drive.",
                    "Write cpu, or stage 3.");
      }
      return;
    }
    NvmeOptions& nvme = config_.zero.nvme;
    constexpr IntegerRange kBuffers{0, 1 << 20};
    const auto number = [&](const JsonValue& part, std::string_view key, std::int64_t& value, IntegerRange range) {
      if (const auto read = count(part, key, range)) value = *read;
    };
    nvme.optimizer = optimizer.is_on_drive;
    nvme.parameters = param.is_on_drive;
    if (nvme.optimizer) {
      number(*optimizer.part, "buffer_count", nvme.buffer_count, kBuffers);
      nvme.pipeline_read = flag(*optimizer.part, "pipeline_read").value_or(false);
      nvme.pipeline_write = flag(*optimizer.part, "pipeline_write").value_or(false);
      // When DeepSpeed makes the engine, it does not read parameters that are already in memory.
      if (nvme.parameters && flag(*optimizer.part, "fast_init").value_or(false)) {
        errors_.add(*optimizer.part->find("fast_init"),
                    "\"fast_init\" with parameters on the drive is predicted only if it is off.", "Write false.");
      }
      read_path(*optimizer.part);
    }
    if (nvme.parameters) {
      number(*param.part, "buffer_count", nvme.param_buffer_count, kBuffers);
      number(*param.part, "buffer_size", nvme.param_buffer_size, kElements);
      number(*param.part, "max_in_cpu", nvme.max_in_cpu, kElements);
      read_path(*param.part, nvme.optimizer);
    }
    const JsonValue* queue = document_.root.find("aio");
    if (queue == nullptr) return;
    number(*queue, "block_size", nvme.block_size, IntegerRange{1, std::int64_t{1} << 40});
    number(*queue, "intra_op_parallelism", nvme.intra_op_parallelism, IntegerRange{1, 1024});
  }

  // Both parts use one drive.
  void read_path(const JsonValue& part, bool is_other = false) {
    const JsonValue* path = part.find("nvme_path");
    if (path == nullptr || path->type != JsonType::String || path->text.empty()) {
      errors_.add(part, "Without \"nvme_path\" DeepSpeed ends with an error.", "Write a folder on the drive.");
      return;
    }
    if (is_other && path->text != config_.zero.nvme.path) {
      errors_.add(*path, "Optimizer and parameters are predicted only on one drive.", "Write the same in both.");
    }
    config_.zero.nvme.path = path->text;
  }

  void read_clipping(const JsonValue* value) {
    config_.clip_grad_norm = 1.0;  // DeepSpeed's default since 0.19.
    if (value == nullptr) return;
    config_.clip_grad_norm.reset();
    if (is_auto(*value)) return;
    double norm = 0;
    if (read_json(*value, norm, errors_, RealRange{0, 1e9})) config_.clip_grad_norm = norm;
  }

  // `nullopt` for "auto".
  std::optional<bool> is_enabled(const JsonValue& part) {
    return part.find("enabled") == nullptr ? false : flag(part, "enabled");
  }

  void read_precision(const JsonValue& root) {
    std::optional<bool> bf16 = false;
    bool is_pure = false;
    for (const std::string_view key : {"bfloat16", "bf16"}) {
      const JsonValue* part = root.find(key);
      if (part == nullptr || !expect_type(*part, JsonType::Object, "an object", errors_)) continue;
      check_keys(*part, deepspeed_bf16_keys(), key);
      bf16 = is_enabled(*part);
      is_pure = bf16.value_or(false) && keeps_no_copy(*part);
    }
    const std::optional<bool> fp16 = read_fp16(root.find("fp16"));
    if (bf16.value_or(false) && fp16.value_or(false)) {
      errors_.add(*root.find("fp16"), "DeepSpeed computes in bf16 or in fp16, and here both are enabled.",
                  "Write false for one of them.");
    } else if (fp16.value_or(false)) {
      config_.precision = DeepSpeedPrecision::Float16;
    } else if (bf16.value_or(false)) {
      config_.precision = is_pure ? DeepSpeedPrecision::PureBFloat16 : DeepSpeedPrecision::BFloat16;
    } else if (bf16 && fp16) {
      config_.precision = DeepSpeedPrecision::Float32;
    }
  }

  bool keeps_no_copy(const JsonValue& bf16) {
    const bool has_masters = flag(bf16, "bf16_master_weights_and_grads").value_or(false);
    const bool has_states = flag(bf16, "bf16_optimizer_states").value_or(false);
    if (has_states && !has_masters) {
      errors_.add(*bf16.find("bf16_optimizer_states"),
                  "DeepSpeed takes \"bf16_optimizer_states\" only with \"bf16_master_weights_and_grads\".",
                  "Write true for both, or leave both out.");
    } else if (has_masters && !has_states) {
      errors_.add(*bf16.find("bf16_master_weights_and_grads"),
                  "\"bf16_master_weights_and_grads\" is predicted only with \"bf16_optimizer_states\".",
                  "Write true for both, or leave both out.");
    }
    return has_masters && has_states;
  }

  std::optional<bool> read_fp16(const JsonValue* part) {
    if (part == nullptr || !expect_type(*part, JsonType::Object, "an object", errors_)) return false;
    check_keys(*part, deepspeed_fp16_keys(), "fp16");
    const std::optional<bool> is_on = is_enabled(*part);
    if (!is_on.value_or(true)) return is_on;
    Fp16Options& fp16 = config_.zero.fp16;
    fp16.auto_cast = flag(*part, "auto_cast").value_or(false);
    const JsonValue* scale = part->find("loss_scale");
    if (scale != nullptr && !is_auto(*scale)) read_json(*scale, fp16.loss_scale, errors_, RealRange{0, 1e30});
    if (fp16.loss_scale > 0) return is_on;  // Then the others have no effect.
    const auto number = [&](std::string_view key, std::int64_t& value, IntegerRange range) {
      if (const auto read = count(*part, key, range)) value = *read;
    };
    constexpr IntegerRange kSteps{1, std::int64_t{1} << 40};
    number("initial_scale_power", fp16.initial_scale_power, IntegerRange{0, 100});
    number("loss_scale_window", fp16.loss_scale_window, kSteps);
    number("hysteresis", fp16.hysteresis, kSteps);
    number("min_loss_scale", fp16.min_loss_scale, kSteps);
    if (const auto refills = flag(*part, "consecutive_hysteresis")) fp16.consecutive_hysteresis = *refills;
    return is_on;
  }

  // The script's own optimizer. By default, DeepSpeed accepts only its own CPU optimizers on the host.
  void check_own_optimizer() {
    const JsonValue* forces = document_.root.find("zero_force_ds_cpu_optimizer");
    if (!config_.offload || forces == nullptr || forces->type != JsonType::Bool || forces->boolean) return;
    errors_.add(*forces, "PyTorch's own optimizers on the host are not predicted; DeepSpeedCPUAdam is.",
                "Write true, and hand DeepSpeedCPUAdam to deepspeed.initialize.");
  }

  void read_optimizer(const JsonValue* optimizer) {
    if (optimizer != nullptr && !expect_type(*optimizer, JsonType::Object, "an object", errors_)) return;
    const JsonValue* type = optimizer == nullptr ? nullptr : optimizer->find("type");
    if (type == nullptr) return check_own_optimizer();
    std::string name = type->text;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const JsonValue* params = optimizer->find("params");
    const auto param = [&](std::string_view key) { return params == nullptr ? nullptr : params->find(key); };
    const auto is_true = [&](std::string_view key, bool otherwise) {
      const JsonValue* value = param(key);
      return value == nullptr ? otherwise : value->type == JsonType::Bool && value->boolean;
    };
    if (name == "adam" || name == "adamw") {
      const bool decouples = name == "adamw" || is_true("adam_w_mode", true);
      config_.optimizer = decouples ? OptimizerKind::AdamW : OptimizerKind::Adam;
      config_.has_fused_adam = !is_true("torch_adam", false);
      if (config_.offload && !config_.has_fused_adam) {
        errors_.add(*param("torch_adam"), "PyTorch's own Adam on the host is not predicted; DeepSpeedCPUAdam is.",
                    "Leave torch_adam out.");
      }
      if (config_.has_fused_adam) config_.implementation = OptimizerImplementation::Fused;
    } else if (type->text == "SGD") {
      config_.optimizer = OptimizerKind::Sgd;
      const JsonValue* momentum = param("momentum");
      if (momentum != nullptr && momentum->real != 0) {
        errors_.add(*momentum, "SGD's momentum is not taken over from a configuration of DeepSpeed.",
                    "Leave the optimizer out here, and write the momentum into the model's recipe.");
      }
    } else {
      errors_.add(*type, fmt::format("The optimizer {} is not predicted.", describe(*type)),
                  "Adam, AdamW and SGD are. Leave it out to plan for the recipe's.");
    }
  }

  const JsonDocument& document_;
  JsonErrors errors_;
  DeepSpeedConfig config_;
  int stage_ = 2;  // zero_optimization.stage
};

}  // namespace

Result<DeepSpeedConfig> read_deepspeed_config(const JsonDocument& document) {
  return DeepSpeedReader(document).read();
}

Result<DeepSpeedConfig> read_deepspeed_config(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  return read_deepspeed_config(document);
}

void fill_in(const DeepSpeedAutoSizes& sizes, std::int64_t hidden_size, ZeroOptions& zero) {
  const std::int64_t square = hidden_size * hidden_size;
  if (sizes.reduce_bucket) zero.reduce_bucket_size = square;
  if (sizes.prefetch_bucket) zero.prefetch_bucket_size = static_cast<std::int64_t>(0.9 * static_cast<double>(square));
  if (sizes.persistence_threshold) zero.param_persistence_threshold = 10 * hidden_size;
}

Result<DeepSpeedBatch> batch_of(const DeepSpeedConfig& config, std::int64_t world, const std::string& where) {
  DeepSpeedBatch batch{config.micro_batch, config.accumulation};
  if (!config.train_batch) {
    // A missing accumulation is 1; if both are missing, both are unknown.
    if (batch.micro_batch && !batch.accumulation) batch.accumulation = 1;
    return batch;
  }
  const std::int64_t train = *config.train_batch;
  if (batch.micro_batch && !batch.accumulation) batch.accumulation = train / *batch.micro_batch / world;
  if (!batch.accumulation) batch.accumulation = 1;
  if (!batch.micro_batch) batch.micro_batch = train / world / *batch.accumulation;
  // Each is below 2^31, but the product may overflow int64.
  const double product =
      static_cast<double>(*batch.micro_batch) * static_cast<double>(*batch.accumulation) * static_cast<double>(world);
  if (product == static_cast<double>(train)) return batch;
  return failure(
      where,
      fmt::format("train_batch_size {} is not train_micro_batch_size_per_gpu {} x gradient_accumulation_steps {} "
                  "x {} GPUs.",
                  train, *batch.micro_batch, *batch.accumulation, world),
      "DeepSpeed ends with an error here. Change one of them.");
}

}  // namespace fsdp
