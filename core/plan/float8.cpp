// Not modeled: layers of torch.compile, by which torchao and torchtitan recommend to train so; formats of blocks
// (MXFP8, NVFP4, DeepSeek's); experts; emulation.

#include "core/plan/float8.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/base/nearest.h"
#include "core/base/split.h"
#include "core/model/op.h"
#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"
#include "core/plan/plan.h"

namespace fsdp {

namespace {

constexpr std::string_view kFloat8Place = "--fp8";
constexpr std::array kRecipes = {Float8Recipe::Tensorwise, Float8Recipe::Rowwise, Float8Recipe::RowwiseWithGwHp};
constexpr std::array<std::string_view, 6> kFloat8Words = {"tensorwise", "rowwise",    "rowwise_with_gw_hp",
                                                          "all_gather", "precompute", "skip="};
constexpr std::string_view kFloat8Form = "Write tensorwise, rowwise or rowwise_with_gw_hp, and after it ,all_gather.";
constexpr std::string_view kSkipPrefix = "skip=";
constexpr std::string_view kNone = "none";

/// What other formats lack here.
struct OtherFormat {
  std::string_view word;
  std::string_view what;
};
constexpr OtherFormat kOtherFormats[] = {
    {"mxfp8", "MXFP8 is not predicted: its casts are kernels of torchao that only a compiled model fuses."},
    {"mxfp8_cublas", "MXFP8 is not predicted: its casts are kernels of torchao that only a compiled model fuses."},
    {"nvfp4", "NVFP4 is not predicted: its casts are kernels of torchao that only a compiled model fuses."},
    {"delayed", "Delayed scaling is not predicted, and torchao has none any more."},
    {"te", "Layers of TransformerEngine are not predicted."},
};

std::optional<Error> read_float8_word(std::string_view word, std::string_view where, Float8Training& float8) {
  if (word == "all_gather") {
    float8.all_gather = true;
  } else if (word == "precompute") {
    float8.precompute = true;
  } else if (word.starts_with(kSkipPrefix)) {
    for (const std::string_view name : split(word.substr(kSkipPrefix.size()), '+')) {
      if (name.empty()) return Error{std::string(where), "\"skip=\" has an empty name.", "Write skip=output+wk."};
      if (name == kFloat8AutoFilter) {
        float8.skips_small = true;
      } else if (name == kNone) {
        float8.skips_none = true;
      } else {
        float8.skip.emplace_back(name);
      }
    }
  } else {
    for (const OtherFormat& other : kOtherFormats) {
      if (other.word == word) return Error{std::string(where), std::string(other.what), std::string(kFloat8Form)};
    }
    return Error{std::string(where), fmt::format("Unknown word \"{}\".", word), suggest_name(word, kFloat8Words)};
  }
  return std::nullopt;
}

void check_float8_text(const Float8Training& float8, std::string_view where, Errors& errors) {
  const auto wrong = [&](std::string what, std::string_view hint) {
    errors.push_back({std::string(where), std::move(what), std::string(hint)});
  };
  if (float8.all_gather && float8.recipe != Float8Recipe::Tensorwise) {
    wrong(
        fmt::format("enable_fsdp_float8_all_gather only supports tensorwise scaling, not {}.", name_of(float8.recipe)),
        "Write tensorwise,all_gather, or leave all_gather out.");
  }
  if (float8.skips_none && !float8.skip.empty()) {
    wrong("\"none\" beside names of layers.", "Write skip=none, or the names alone.");
  }
  if (float8.precompute && !float8.all_gather) {
    wrong("Scales are computed ahead for weights that are gathered in float8.",
          "Write tensorwise,all_gather,precompute, or leave precompute out.");
  }
  if (float8.skips_small && float8.recipe == Float8Recipe::RowwiseWithGwHp) {
    wrong("torchao has no auto_filter_small_kn for rowwise_with_gw_hp.", "Leave it out, or name layers in skip=.");
  }
}

// _auto_filter_for_tensorwise and _auto_filter_for_rowwise.
bool is_small(Float8Recipe recipe, std::int64_t rows, std::int64_t columns) {
  if (recipe == Float8Recipe::Tensorwise) return columns <= 4096 && rows <= 1024;
  return rows <= 2048 || columns <= 1024 || (rows <= 4096 && columns <= 2048);
}

/// Without names of layers the output head alone stays as it is.
bool leaves_head(const Float8Training& float8) {
  return float8.skip.empty() && !float8.skips_none;
}

std::vector<std::string> skipped_words(const Float8Training& float8) {
  std::vector<std::string> words = float8.skip;
  if (float8.skips_none) words.emplace_back(kNone);
  if (float8.skips_small) words.emplace_back(kFloat8AutoFilter);
  return words;
}

Error misfit(std::string what, std::string hint) {
  return {std::string(kFloat8Place), std::move(what), std::move(hint)};
}

Error beside(std::string_view what, std::string_view option) {
  return misfit(fmt::format("Float8 layers are not predicted beside {}.", what),
                fmt::format("Plan without {}, or without --fp8.", option));
}

// What was not compared with the library.
std::optional<Error> choices_misfit(const Plan& plan, const Model& model) {
  const Implementations& use = plan.runtime.implementations;
  if (plan.lora) return beside("adapters, whose base is frozen", "--lora");
  if (plan.liger) return beside("Liger's kernels", "--liger");
  if (!plan.also.empty()) return beside("another model", "--also");
  if (plan.packing) return beside("packed rows", "--packing");
  if (plan.optimizer.muon) return beside("Muon", "--muon");
  if (plan.cuda_graphs) return beside("CUDA graphs", "--cuda-graphs");
  if (plan.mixed_precision.autocast) return beside("autocast", "--precision autocast");
  if (plan.mesh.ep > 1) return beside("expert parallelism", "--ep");
  if (use.automodel_decoders || use.lora_in_one_op) return beside("NeMo Automodel's classes", "--flavor automodel");
  if (has_op(model, [](const Op& op) { return is_of_experts(op.kind); })) {
    return misfit("Float8 layers are not predicted in a mixture of experts.", "Plan without --fp8.");
  }
  if (plan.checkpointing.has(CheckpointMode::Nested) || plan.checkpointing.has(CheckpointMode::Reentrant)) {
    return misfit("Float8 layers are not predicted with nested or reentrant checkpoints.",
                  "Plan with --activation-checkpointing full or selective.");
  }
  if (plan.checkpointing.offload_inputs) return beside("inputs of blocks in host memory", "--checkpoint-offload");
  return std::nullopt;
}

// What the model itself rules out.
std::optional<Error> layers_misfit(const Plan& plan, const Model& model) {
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[static_cast<std::size_t>(call.block)].ops) {
      if (!op.attributes.float8) continue;
      const int id = call.parameters[static_cast<std::size_t>(op.parameters.front())];
      const Parameter& weight = model.parameters[static_cast<std::size_t>(id)];
      if (!weight.tied_names.empty()) {
        return misfit(fmt::format("\"{}\" is tied to \"{}\", and a float8 layer with a tied weight is not predicted.",
                                  weight.name, weight.tied_names.front()),
                      "Leave the output head as it is: name it in skip=.");
      }
      if (!weight.trainable || !weight.receives_gradient) {
        return misfit(fmt::format("\"{}\" is frozen, and frozen float8 layers are not predicted.", weight.name),
                      "Train it, or name it in skip=.");
      }
    }
  }
  if (loss_row(plan.runtime.implementations.loss).takes_head &&
      (plan.float8->skips_none || !plan.float8->skip.empty())) {
    return misfit("A loss that takes the output head was compared with float8 layers that leave the head as it is.",
                  "Leave skip= out, or plan with --loss pytorch.");
  }
  return std::nullopt;
}

// WeightWithDynamicFloat8CastTensor is sent without the padding that FSDP2 expects of it, and not from a smaller shard
// (FSDPParam.all_gather_inputs).
std::optional<Error> gather_misfit(const Plan& plan, const Model& model) {
  if (!traits_of(plan).wraps_units) {
    return misfit("Weights are gathered in float8 by FSDP2 alone.",
                  "Leave all_gather out, or plan with --runtime fsdp2.");
  }
  const std::int64_t shards = plan.mesh.dp_shard();
  if (shards == 1) return misfit("Over one GPU nothing is gathered in float8.", "Leave all_gather out.");
  for (const Unit& unit : plan.units) {
    if (unit.reshard_after_forward.kind != ReshardAfterForward::Kind::Smaller) continue;
    return misfit("FSDP2 has no integer reshard_after_forward for weights that are gathered in float8.",
                  "Plan with --reshard yes or no, or leave all_gather out.");
  }
  for (const Parameter& parameter : model.parameters) {
    if (!parameter.gathered_in_float8 || parameter.shape.front() % shards == 0) continue;
    return misfit(
        fmt::format("{} GPUs do not divide the {} rows of \"{}\", and FSDP2 gathers no weights in float8 that it "
                    "pads.",
                    shards, parameter.shape.front(), parameter.name),
        "Leave all_gather out, or shard over a number of GPUs that divides them.");
  }
  if (plan.cpu_offload) return beside("CPU offload of weights that are gathered in float8", "--offload");
  return std::nullopt;
}

bool is_in_16_bits_or_32(const Model& model, const Plan& plan) {
  const Dtype activation = activation_dtype(model, plan);
  return activation == Dtype::BFloat16 || activation == Dtype::Float32;
}

}  // namespace

Result<Float8Training> parse_float8(std::string_view text, std::string_view where) {
  Float8Training float8;
  Errors errors;
  int recipes = 0;
  for (const std::string_view word : split(text, ',')) {
    const auto* const recipe =
        std::find_if(kRecipes.begin(), kRecipes.end(), [&](Float8Recipe known) { return name_of(known) == word; });
    if (recipe != kRecipes.end()) {
      float8.recipe = *recipe;
      ++recipes;
    } else if (auto error = read_float8_word(word, where, float8)) {
      errors.push_back(*std::move(error));
    }
  }
  if (errors.empty() && recipes != 1) {
    errors.push_back({std::string(where),
                      fmt::format("\"{}\" names {}.", text, recipes == 0 ? "no recipe" : "two recipes"),
                      std::string(kFloat8Form)});
  }
  if (errors.empty()) check_float8_text(float8, where, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return float8;
}

std::string to_text(const Float8Training& float8) {
  const std::vector<std::string> words = skipped_words(float8);
  return fmt::format("{}{}{}{}", name_of(float8.recipe), float8.all_gather ? ",all_gather" : "",
                     float8.precompute ? ",precompute" : "",
                     words.empty() ? std::string() : fmt::format(",{}{}", kSkipPrefix, fmt::join(words, "+")));
}

std::string sentence_of(const Float8Training& float8) {
  return fmt::format("float8 linear layers ({}{}{})", name_of(float8.recipe),
                     float8.all_gather ? ", gathered in float8" : "", float8.precompute ? ", scales ahead" : "");
}

bool is_converted(const Float8Training& float8, std::string_view name, bool is_output_head, std::int64_t rows,
                  std::int64_t columns) {
  if (rows % 16 != 0 || columns % 16 != 0) return false;
  if (leaves_head(float8) && is_output_head) return false;
  if (float8.skips_small && is_small(float8.recipe, rows, columns)) return false;
  return std::none_of(float8.skip.begin(), float8.skip.end(),
                      [&](const std::string& part) { return name.find(part) != std::string_view::npos; });
}

std::string python_of(const Float8Training& float8, std::string_view head) {
  const std::vector<std::string> skipped =
      leaves_head(float8) && !head.empty() ? std::vector<std::string>{std::string(head)} : float8.skip;
  std::string filter = R"(module.in_features % 16 == 0 and module.out_features % 16 == 0)";
  for (const std::string& part : skipped) filter += fmt::format(R"( and "{}" not in name)", part);
  if (float8.skips_small) {
    filter = fmt::format(R"(torchao.float8._auto_filter_for_recipe("{}", [{}])(module, name))", name_of(float8.recipe),
                         skipped.empty() ? "" : fmt::format(R"("{}")", fmt::join(skipped, R"(", ")")));
  }
  const std::string config = float8.all_gather
                                 ? std::string("Float8LinearConfig(enable_fsdp_float8_all_gather=True)")
                                 : fmt::format(R"(Float8LinearConfig.from_recipe_name("{}"))", name_of(float8.recipe));
  return fmt::format(
      "torchao.float8.convert_to_float8_training(model, config=torchao.float8.{}, "
      "module_filter_fn=lambda module, name: {})",
      config, filter);
}

bool precomputes_scales(const Plan& plan) {
  return plan.float8 && plan.float8->precompute;
}

std::optional<Error> float8_misfit(const Plan& plan, const Model& model) {
  if (!plan.float8) return std::nullopt;
  const FrameworkTraits& traits = traits_of(plan);
  if (!traits.keeps_each_parameter()) {
    return misfit(fmt::format("Float8 layers are not predicted under {}.", traits.title),
                  "Plan with --runtime fsdp2 or ddp.");
  }
  if (auto error = choices_misfit(plan, model)) return error;
  if (auto error = layers_misfit(plan, model)) return error;
  if (!is_in_16_bits_or_32(model, plan)) {
    return misfit("Float8 layers are predicted between tensors in bfloat16 or float32.",
                  "Plan with --precision bf16, mixed or fp32.");
  }
  return plan.float8->all_gather ? gather_misfit(plan, model) : std::nullopt;
}

}  // namespace fsdp
