#include "render/trainer_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/base/parse_units.h"
#include "core/plan/framework_traits.h"
#include "core/plan/liger_kernels.h"
#include "core/plan/loss_table.h"
#include "core/plan/quantization.h"
#include "core/spec/quantized_base.h"
#include "render/python_words.h"

namespace fsdp::render {

namespace {

std::string_view place_of(const Plan& plan) {
  switch (plan.initialization) {
    case Initialization::Meta:
      if (traits_of(plan).zero_stage == 3) return "under deepspeed.zero.Init, which shards each module when it is made";
      return traits_of(plan).zero_stage > 0 ? "on the meta device, and filled on the GPU before DeepSpeed takes it"
                                            : "on the meta device, and filled when it is sharded";
    case Initialization::Cpu:
      return "on the CPU";
    case Initialization::Device:
      return "on the GPU";
  }
  return {};
}

/// The dtypes of the trained parameters, or of the frozen ones, which stay as they were loaded: "bfloat16 and float32".
std::string dtypes_of(const TrainerConfig& config, bool trained) {
  const std::optional<Dtype>& chosen = config.said.plan.parameter_dtype;
  std::vector<std::string_view> names;
  for (const Parameter& parameter : config.model.parameters) {
    if (parameter.trainable != trained) continue;
    const std::string_view name = name_of(trained && chosen ? *chosen : parameter.dtype);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

/// "parameters in float32", or "trained parameters in float32, frozen ones in bfloat16".
std::string dtypes_of_model(const TrainerConfig& config) {
  // DeepSpeed itself makes the fp32 copy.
  if (traits_of(config.said.plan).precision == PrecisionRule::MasterCopy)
    return fmt::format("parameters in {}", name_of(activation_dtype(config.model, config.said.plan)));
  const std::string trained = dtypes_of(config, true);
  const std::string frozen = dtypes_of(config, false);
  if (frozen.empty() || frozen == trained) return fmt::format("parameters in {}", trained);
  return fmt::format("trained parameters in {}, frozen ones in {}", trained, frozen);
}

/// How a script adds the adapters. PEFT makes 16-bit ones float32 unless it is told not to.
std::string words_of_adapters(const TrainerConfig& config) {
  const bool stay =
      traits_of(config.said.plan).precision == PrecisionRule::MasterCopy || dtypes_of(config, true) != "float32";
  return fmt::format("{}peft.get_peft_model(model, {}{}) before the model is wrapped",
                     config.said.plan.lora->input_grads ? "model.enable_input_require_grads(), then " : "",
                     python_of(*config.said.plan.lora), stay ? ", autocast_adapter_dtype=False" : "");
}

}  // namespace

std::string liger_config_of(const Plan& plan, const Model& model) {
  std::array<bool, kNumLigerKernels> runs{};
  for (const Block& block : model.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind == OpKind::LigerGlu) runs[static_cast<std::size_t>(LigerKernel::Glu)] = true;
      if (!op.attributes.liger) continue;
      runs[static_cast<std::size_t>(op.kind == OpKind::RmsNorm ? LigerKernel::RmsNorm : LigerKernel::Rope)] = true;
    }
  }
  const auto word = [&](LigerKernel kernel) { return runs[static_cast<std::size_t>(kernel)] ? "True" : "False"; };
  const bool has_loss = plan.runtime.implementations.loss.kind == LossKind::Liger;
  return fmt::format(
      R"({{"fused_linear_cross_entropy": {}, "cross_entropy": False, "rope": {}, "rms_norm": {}, "layer_norm": False, )"
      R"("swiglu": {}, "geglu": {}}})",
      has_loss ? "True" : "False", word(LigerKernel::Rope), word(LigerKernel::RmsNorm), word(LigerKernel::Glu),
      word(LigerKernel::Glu));
}

std::string words_of_liger(const Plan& plan, const Model& model) {
  if (!plan.liger) return {};
  return fmt::format("liger_kernel.transformers._apply_liger_kernel_to_instance(model, **{})",
                     liger_config_of(plan, model));
}

std::string words_of_float8(const Plan& plan, const Model& model) {
  if (!plan.float8) return {};
  std::string_view head;
  for (const Call& call : model.calls) {
    const Block& block = model.blocks[static_cast<std::size_t>(call.block)];
    if (block.kind == "lm_head" && call.module >= 0) head = model.modules[static_cast<std::size_t>(call.module)].name;
  }
  return python_of(*plan.float8, head);
}

std::string words_of_quantization(const Plan& plan, const Model& model) {
  if (!plan.quantization) return {};
  const auto is_frozen = [](const Parameter& parameter) { return parameter.stands_for == 0 && !parameter.trainable; };
  const auto base = std::find_if(model.parameters.begin(), model.parameters.end(), is_frozen);
  const Dtype compute = activation_dtype(model, plan);
  return python_of(*plan.quantization, base == model.parameters.end() ? compute : base->dtype, compute);
}

std::vector<std::string> opening_of(const TrainerConfig& config, const std::string& command) {
  std::vector<std::string> lines = {
      fmt::format("{} by {}, for {}.", config.said.plan.model, config.source, name_of(config.release)), "",
      "    " + command, ""};
  lines.push_back(fmt::format("Predicted: {}.", predicted_of(config.said.report)));
  if (config.said.changes.empty()) return lines;
  lines.insert(lines.end(), {"", "It is the closest plan that can be expressed here. Requested, but not done:"});
  for (const Error& change : config.said.changes) lines.push_back(fmt::format("  {}: {}", change.where, change.what));
  return lines;
}

std::vector<std::string> lines_of(const std::string& heading, const std::vector<Duty>& duties) {
  if (duties.empty()) return {};
  std::size_t width = 0;
  for (const Duty& duty : duties) width = std::max(width, duty.first.size() + 2);
  std::vector<std::string> lines = {"", heading};
  for (const auto& [subject, words] : duties) lines.push_back(fmt::format("  {:<{}}{}", subject + ":", width, words));
  return lines;
}

bool loads_on_first_process(const TrainerConfig& config) {
  const bool is_kept_outside = std::any_of(config.model.buffers.begin(), config.model.buffers.end(),
                                           [](const Buffer& buffer) { return buffer.persistent && buffer.registered; });
  const bool is_flat = traits_of(config.said.plan).has_flat_parameters;
  return config.said.plan.initialization == Initialization::Meta && !is_kept_outside && !is_flat;
}

std::string words_of_loading(const TrainerConfig& config) {
  Bytes model;
  for (const Parameter& parameter : config.model.parameters) {
    model += num_elements(parameter.shape) * size_of(parameter.dtype);
  }
  if (config.said.plan.quantization) {
    return fmt::format("each GPU quantizes the whole model before it is sharded, {} with its scales",
                       format_bytes(model + bytes_of_quantized(config.model).whole));
  }
  const std::int64_t processes = config.said.plan.mesh.world_size() / config.cluster.nodes;
  const std::string copies =
      fmt::format("{} whole copies of it on a node, {}", processes, format_bytes(model * processes));
  if (loads_on_first_process(config)) {
    return fmt::format(
        "the first process of a node alone reads what from_pretrained loads, {}, and sends the others their shards. "
        "Without it there are {}. Set it to false for a model that a script makes on the meta device",
        format_bytes(model), copies);
  }
  return fmt::format("each process reads the whole model: {}", copies);
}

std::string words_of_loss(const Loss& loss) {
  const LossRow& row = loss_row(loss);
  const std::string_view key = row.trl.empty() ? row.hugging_face : row.trl;
  return fmt::format("{} of {}{}", row.title, row.library, key.empty() ? std::string() : fmt::format(": {}", key));
}

std::string words_of_packing(const Plan& plan) {
  const Dimension* tokens = find_dimension(plan.dimensions, "seq");
  const auto row = tokens == nullptr ? 0 : static_cast<std::int64_t>(tokens->value);
  if (plan.packing->attention == PackedAttention::Varlen) {
    return fmt::format("one row of {} tokens, by torch.nn.attention.varlen with the boundaries of its documents", row);
  }
  if (plan.packing->attention == PackedAttention::Flex) {
    return fmt::format(
        "rows of {} tokens, by torch.compile(flex_attention) with a block mask of their documents: torchtitan's "
        "attn_backend=\"flex\", or transformers' attn_implementation=\"flex_attention\" with use_cache=False",
        row);
  }
  const bool is_flash = plan.packing->attention == PackedAttention::FlashAttn;
  return fmt::format(
      "one row of {} tokens: SFTConfig(packing=True, max_length={}, per_device_train_batch_size=1) of trl 1.16.0, or "
      "transformers' DataCollatorWithFlattening{}; attn_implementation=\"{}\", use_cache=False",
      row, row, is_flash ? "(return_flash_attn_kwargs=True)" : "", is_flash ? "flash_attention_2" : "sdpa");
}

/// Empty for PyTorch's choice.
std::string words_of_attention(AttentionBackend attention) {
  switch (attention) {
    case AttentionBackend::Automatic:
      return "";
    case AttentionBackend::Eager:
      return "attn_implementation=\"eager\"";
    case AttentionBackend::FlashAttn:
      return "attn_implementation=\"flash_attention_2\", and rows of one length";
    default:
      return fmt::format("torch.nn.attention.sdpa_kernel around the step, with {} alone",
                         name_of(kAttentionBackendTable, attention));
  }
}

std::vector<Duty> duties_of_model(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  const bool is_of_accelerate = config.release.trainer == planner::Trainer::Accelerate ||
                                config.release.trainer == planner::Trainer::Transformers;
  std::vector<Duty> duties = {
      {"model", fmt::format("{}; predicted for a model that is made {}", dtypes_of_model(config), place_of(plan))}};
  if (is_of_accelerate && !traits_of(plan).has_flat_parameters)
    duties.emplace_back("loading", words_of_loading(config));
  if (!plan.trainable.empty()) {
    duties.emplace_back("trained", fmt::format("only what matches {}", fmt::join(plan.trainable, ", ")));
  }
  if (!plan.frozen.empty()) {
    duties.emplace_back("frozen", fmt::format("requires_grad_(False) where {} matches", fmt::join(plan.frozen, ", ")));
  }
  // TrainingArguments have an argument for it.
  const bool has_argument = config.release.trainer == planner::Trainer::Transformers;
  if (const Loss& loss = plan.runtime.implementations.loss; loss != Loss{} && !has_argument) {
    duties.emplace_back("loss", words_of_loss(loss));
  }
  if (plan.liger && !has_argument) {
    duties.emplace_back("kernels", words_of_liger(plan, config.model) + " before the model is wrapped");
  }
  if (plan.float8) {
    duties.emplace_back("float8", words_of_float8(plan, config.model) + " before the model is wrapped");
  }
  if (plan.quantization) {
    duties.emplace_back("base", fmt::format("from_pretrained(..., quantization_config={}), without "
                                            "prepare_model_for_kbit_training, which makes embeddings, head and norms "
                                            "float32",
                                            words_of_quantization(plan, config.model)));
  }
  if (plan.lora) duties.emplace_back("adapters", words_of_adapters(config));
  if (plan.packing) duties.emplace_back("packing", words_of_packing(plan));
  if (std::string attention = words_of_attention(plan.runtime.implementations.attention); !attention.empty()) {
    duties.emplace_back("attention", std::move(attention));
  }
  for (const OtherModel& other : plan.also) {
    duties.emplace_back("beside", fmt::format("{}: TRL's trainers make and wrap it (ref_model)", other.file));
  }
  return duties;
}

std::string_view backward_prefetch_of(const Plan& plan) {
  switch (plan.fsdp1.backward_prefetch) {
    case BackwardPrefetch::Pre:
      return "BACKWARD_PRE";
    case BackwardPrefetch::Post:
      return "BACKWARD_POST";
    case BackwardPrefetch::None:
      break;
  }
  return "NO_PREFETCH";
}

std::string torchrun_of(const TrainerConfig& config, std::string_view program) {
  std::string command = fmt::format("{}torchrun --nproc-per-node {} ", environment_before(config.said.plan),
                                    config.said.plan.mesh.world_size() / config.cluster.nodes);
  if (config.cluster.nodes > 1) {
    command += fmt::format("--nnodes {} --node-rank RANK --master-addr HOST ", config.cluster.nodes);
  }
  return command.append(program);
}

std::string environment_before(const Plan& plan) {
  const std::string environment = environment_of(plan);
  return environment.empty() ? "" : environment + " ";
}

std::string predicted_of(const StepReport& report) {
  return fmt::format("{} on each GPU, {} a step{}", format_bytes(report.memory.peaks.device),
                     format_time(report.time.step),
                     report.verdict == Verdict::DoesNotFit ? ", which does not fit" : "");
}

std::string to_text(const TrainerConfig& config) {
  switch (config.release.trainer) {
    case planner::Trainer::Accelerate:
      return accelerate_yaml(config);
    case planner::Trainer::Transformers:
      return trainer_python(config);
    case planner::Trainer::Torchtitan:
      return config.release.has_registry ? torchtitan_registry(config) : torchtitan_toml(config);
    case planner::Trainer::DeepSpeed:
      return deepspeed_json(config);
  }
  return {};
}

std::vector<std::string> notes_beside(const TrainerConfig& config) {
  if (config.release.trainer != planner::Trainer::DeepSpeed) return {};
  return deepspeed_notes(config);
}

}  // namespace fsdp::render
