#include "planner/space/space.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/base/nearest.h"
#include "core/base/parse_units.h"
#include "core/base/split.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version.h"
#include "core/spec/captured_model.h"
#include "core/spec/other_specs.h"
#include "planner/space/batches.h"
#include "planner/space/families.h"
#include "planner/space/search_traits.h"

namespace fsdp::planner {

namespace {

using Kind = ReshardAfterForward::Kind;

/// A positive number and nothing else.
std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t count = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || rest != text.data() + text.size() || count < 0) return std::nullopt;
  return count;
}

template <class T>
std::string join(const std::vector<T>& parts) {
  std::string text;
  for (const T& part : parts) text += fmt::format("{}{}", text.empty() ? "" : ", ", part);
  return text;
}

struct Scale {
  char letter = 0;
  std::int64_t factor = 1;
};
/// Numbers of elements are decimal: a thousand, not 1024.
constexpr std::array kScales = {Scale{'G', 1'000'000'000}, Scale{'M', 1'000'000}, Scale{'K', 1'000}};
/// The largest number that a double holds exactly.
constexpr double kMostElements = 9e15;

/// "100M", "1.5G", "1e8" or "100000000": a positive whole number of elements.
std::optional<std::int64_t> parse_elements(std::string_view text) {
  std::int64_t factor = 1;
  for (const Scale& scale : kScales) {
    if (text.empty() || std::toupper(static_cast<unsigned char>(text.back())) != scale.letter) continue;
    factor = scale.factor;
    text.remove_suffix(1);
    break;
  }
  const std::optional<double> number = parse_number(text);
  const double product = number.value_or(0) * static_cast<double>(factor);
  const double elements = std::round(product);
  // "2.3M" is slightly off in a double, and still a whole number.
  const bool is_whole = std::abs(product - elements) <= 1e-12 * elements;
  if (elements < 1 || elements > kMostElements || !is_whole) return std::nullopt;
  return static_cast<std::int64_t>(elements);
}

std::string text_of_elements(std::int64_t elements) {
  for (const Scale& scale : kScales) {
    if (elements % scale.factor == 0) return fmt::format("{}{}", elements / scale.factor, scale.letter);
  }
  return std::to_string(elements);
}

constexpr std::string_view kSizePolicy = "size:";
constexpr std::string_view kClassPolicy = "class:";

Result<Wrap> parse_size_policy(std::string_view text) {
  const auto elements = parse_elements(text);
  if (!elements) {
    return failure("--wrap", fmt::format("\"{}\" is not a number of elements.", text),
                   "Write min_num_params of size_based_auto_wrap_policy: size:100M, size:1.5G or size:100000000. K, M "
                   "and G are thousands, because the policy counts elements and not bytes.");
  }
  Wrap wrap;
  wrap.min_elements = *elements;
  return wrap;
}

Result<Wrap> parse_class_policy(std::string_view text) {
  Wrap wrap;
  for (const std::string_view name : split(text, ',')) {
    if (name.empty()) {
      return failure("--wrap", fmt::format("\"{}{}\" has an empty class name.", kClassPolicy, text),
                     "Write class:LlamaDecoderLayer, or several with commas between them.");
    }
    wrap.classes.emplace_back(name);
  }
  return wrap;
}

std::string joined_with_commas(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

constexpr std::string_view kWayNames = "none, full, nested, reentrant, selective, save-matmuls, save-attention";

std::optional<CheckpointWay> way_of_name(std::string_view name) {
  for (const CheckpointMode mode : {CheckpointMode::None, CheckpointMode::Nested, CheckpointMode::Reentrant}) {
    if (to_text(CheckpointWay(mode)) == name) return mode;
  }
  for (const CheckpointWay& way : kCheckpointWays) {
    if (to_text(way) == name) return way;
  }
  return std::nullopt;
}

}  // namespace

Result<Wrap> parse_wrap(std::string_view text) {
  if (text == "blocks") return Wrap{1, {}};
  if (text == "root") return Wrap{0, {}};
  if (text == "sublayers") return Wrap{1, {}, BlockParts::Sublayers};
  if (text == "projections") return Wrap{1, {}, BlockParts::Projections};
  if (const auto count = parse_count(text)) {
    if (*count == 0)
      return failure("--wrap", "A unit needs at least one block.", "Write \"root\" for the root as the only unit.");
    return Wrap{*count, {}};
  }
  if (text.starts_with(kSizePolicy)) return parse_size_policy(text.substr(kSizePolicy.size()));
  if (text.starts_with(kClassPolicy)) return parse_class_policy(text.substr(kClassPolicy.size()));
  Wrap wrap;
  for (const std::string_view pattern : split(text, ',')) {
    if (pattern.empty()) {
      return failure("--wrap", fmt::format("\"{}\" has an empty pattern.", text),
                     "Write \"blocks\", \"sublayers\", \"projections\", \"root\", a number of blocks, \"size:100M\", "
                     "\"class:LlamaDecoderLayer\", or patterns such as \"model.layers.*,lm_head\".");
    }
    wrap.patterns.emplace_back(pattern);
  }
  return wrap;
}

Result<ReshardChoice> parse_reshard(std::string_view text) {
  if (text == "true" || text == "True") return ReshardChoice{Kind::Always, 0, 0};
  if (text == "false" || text == "False") return ReshardChoice{Kind::Never, 0, 0};
  if (text == "all") return ReshardChoice{.kind = Kind::Always, .root = true};
  constexpr std::string_view kHead = "+head";
  if (text.ends_with(kHead)) {
    Result<ReshardChoice> blocks = parse_reshard(text.substr(0, text.size() - kHead.size()));
    if (blocks && blocks->kind == Kind::Always && !blocks->root && !blocks->head) {
      blocks->head = true;
      return blocks;
    }
    return failure("--reshard", fmt::format("\"{}\" is not a way to reshard.", text),
                   "Write true+head or keep-last:1+head: the head stays unsharded beside blocks that do not.");
  }
  constexpr std::string_view kKeepLast = "keep-last:";
  const bool keeps = text.starts_with(kKeepLast);
  const auto count = parse_count(keeps ? text.substr(kKeepLast.size()) : text);
  if (keeps && count) return ReshardChoice{Kind::Always, 0, *count};
  if (count == 1) return failure("--reshard", "1 means false in FSDP2.", "Write false.");
  if (count && *count > 1) return ReshardChoice{Kind::Smaller, *count, 0};
  return failure("--reshard", fmt::format("\"{}\" is not a way to reshard.", text),
                 "Write true, false, all, a world size such as 8, or keep-last:4.");
}

Result<CheckpointChoice> parse_checkpoint(std::string_view text) {
  std::string_view mode_text = text;
  std::vector<std::int64_t> counts;
  std::string_view counts_text;
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    mode_text = text.substr(0, colon);
    counts_text = text.substr(colon + 1);
  } else if (!text.empty() && (std::isdigit(static_cast<unsigned char>(text.front())) != 0)) {
    mode_text = "full";
    counts_text = text;
  }
  if (counts_text.data() != nullptr) {
    for (const std::string_view part : split(counts_text, ',')) {
      if (const auto count = parse_count(part)) {
        counts.push_back(*count);
        continue;
      }
      return failure(
          "--activation-checkpointing", fmt::format("\"{}\" is not a number of blocks.", counts_text),
          "Write \"full:12\" for the first 12 blocks of each stack, \"full:32,12\" for 32 of the first stack "
          "and 12 of the second.");
    }
  }
  const std::optional<CheckpointWay> way = way_of_name(mode_text);
  if (!way || (way->mode == CheckpointMode::None && !counts.empty())) {
    return failure("--activation-checkpointing", fmt::format("\"{}\" is not a way to checkpoint.", text),
                   fmt::format("Write {}, or a number of blocks such as 12, full:12 or selective:12.", kWayNames));
  }
  const bool is_nothing = std::all_of(counts.begin(), counts.end(), [](std::int64_t count) { return count == 0; });
  if (way->mode == CheckpointMode::None || (!counts.empty() && is_nothing)) return CheckpointChoice{};
  if (counts.size() > 1) return CheckpointChoice{*way, std::nullopt, std::move(counts)};
  return counts.empty() ? CheckpointChoice{*way} : CheckpointChoice{*way, counts.front()};
}

std::string to_text(const Wrap& wrap) {
  if (!wrap.patterns.empty()) return joined_with_commas(wrap.patterns);
  if (!wrap.classes.empty()) return std::string(kClassPolicy) + joined_with_commas(wrap.classes);
  if (wrap.min_elements > 0) return std::string(kSizePolicy) + text_of_elements(wrap.min_elements);
  if (wrap.parts == BlockParts::Sublayers) return "sublayers";
  if (wrap.parts == BlockParts::Projections) return "projections";
  if (wrap.blocks_per_unit == 0) return "root";
  return wrap.blocks_per_unit == 1 ? "blocks" : std::to_string(wrap.blocks_per_unit);
}

std::string to_text(const ReshardChoice& reshard) {
  if (reshard.kind == Kind::Never) return "false";
  if (reshard.kind == Kind::Smaller) return std::to_string(reshard.world_size);
  if (reshard.root) return "all";
  const std::string_view head = reshard.head ? "+head" : "";
  return reshard.keep_last > 0 ? fmt::format("keep-last:{}{}", reshard.keep_last, head) : fmt::format("true{}", head);
}

std::string to_text(const CheckpointWay& way) {
  if (way.mode != CheckpointMode::Selective) return std::string(name_of(kCheckpointModeTable, way.mode));
  switch (way.saved) {
    case SavedOps::EverySecondMatmul:
      return "selective";
    case SavedOps::Matmuls:
      return "save-matmuls";
    case SavedOps::Attention:
      return "save-attention";
  }
  return "";
}

std::string to_text(const CheckpointChoice& checkpoint) {
  std::string text = to_text(checkpoint.way);
  if (checkpoint.way.mode == CheckpointMode::None) return text;
  if (checkpoint.blocks) text += fmt::format(":{}", *checkpoint.blocks);
  if (!checkpoint.by_stack.empty()) text += fmt::format(":{}", fmt::join(checkpoint.by_stack, ","));
  return text;
}

Space whole(const Space& space) {
  Space all = space;
  all.every_number = true;
  all.parts_from = 0;
  return all;
}

Result<Space> said_by_runtime(Space space) {
  if (!torch_version_of(space.base.runtime).predicts_offload) {
    if (space.cpu_offload.value_or(false)) {
      Plan offloaded = space.base;
      offloaded.cpu_offload = true;
      const Errors errors = check_torch(offloaded);
      return failure("--offload", errors.front().what, "Write no, or plan for --torch 2.10 or later.");
    }
    space.cpu_offload = false;
  }
  // Its own classes are checkpointed in another way than others (core/plan/automodel.cpp), so nobody else decides.
  if (is_of_automodel(space.base.runtime.flavor) && !space.checkpoint) space.checkpoint = CheckpointChoice{};
  const SearchTraits& traits = search_traits(space.base);
  const std::string_view title = traits_of(space.base).title;
  Errors errors;
  const auto refuse = [&](bool is_asked, std::string_view where, std::string what, std::string_view hint) {
    if (is_asked) errors.push_back({std::string(where), std::move(what), std::string(hint)});
  };
  if (!traits.joins_modules) {
    refuse(space.wrap && space.wrap->blocks_per_unit > 1, "--wrap", fmt::format("A unit of {} has one module.", title),
           "Write blocks.");
    std::erase_if(space.blocks_per_unit, [](std::int64_t blocks) { return blocks > 1; });
  }
  if (!traits.cuts_blocks) {
    refuse(space.wrap && space.wrap->parts != BlockParts::Whole, "--wrap",
           fmt::format("Units inside blocks are not predicted for {}.", title), "Write blocks.");
    space.block_parts.clear();
  }
  if (!traits.mixes_reshards) {
    const bool mixes = space.reshard && (space.reshard->kind == ReshardAfterForward::Kind::Smaller ||
                                         space.reshard->keep_last > 0 || space.reshard->root || space.reshard->head);
    refuse(mixes, "--reshard", fmt::format("{} has one strategy for all units.", title), "Write true or false.");
  }
  if (!traits.counts_prefetches) {
    refuse(space.forward_prefetch.value_or(0) != 0 || space.backward_prefetch.value_or(1) != 1, "--prefetch",
           fmt::format("{} has no prefetch by a number of units.", title), "Leave it out.");
    space.forward_prefetches = {0};
    space.backward_prefetches = {1};
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return space;
}

Result<Plan> base_plan(const ModelSpec& spec, const Workload& workload) {
  FSDP_TRY(const Recipe recipe, find_recipe(spec, workload.recipe));
  Plan plan;
  plan.model = spec.name;
  plan.model_file = spec.file_name;
  plan.recipe = recipe.name;
  plan.trainable = workload.trainable;
  plan.frozen = workload.frozen;
  plan.lora = workload.lora;
  plan.packing = workload.packing;
  plan.quantization = workload.quantization;
  plan.liger = workload.liger;
  plan.float8 = workload.float8;
  plan.also = options_of(workload.also);
  plan.parameter_dtype = recipe.parameter_dtype;
  plan.mixed_precision = recipe.mixed_precision;
  plan.optimizer = recipe.optimizer;
  plan.accumulation = recipe.accumulation;
  // transformers 5.24 quantizes the whole model on each GPU (quantizer_bnb_4bit.py, update_device_map).
  plan.initialization = workload.quantization ? Initialization::Device : recipe.initialization;
  plan.runtime.implementations.cudnn_allow_tf32 = recipe.cudnn_allow_tf32;
  plan.runtime.implementations.matmul_allow_tf32 = recipe.matmul_allow_tf32;
  return plan;
}

void keep_recorded(const ModelSpec& spec, Space& space) {
  if (spec.captured == nullptr) return;
  const std::vector<Model>& points = spec.captured->points;
  const bool can = std::all_of(points.begin(), points.end(), [&](const Model& model) {
    return can_checkpoint(model, activation_dtype(model, space.base));
  });
  for (const Model& model : points) {
    const Dimension* batch = find_dimension(model.dimensions, kBatchDimension);
    if (batch != nullptr)
      space.max_micro_batch = std::max(space.max_micro_batch, static_cast<std::int64_t>(batch->value));
  }
  std::erase_if(space.checkpoint_ways,
                [&](const CheckpointWay& way) { return way.mode != CheckpointMode::Full || !can; });
  // A plan does not change the script's loop.
  if (!points.front().says_last_micro_batch) space.gradient_syncs = {true};
}

namespace {

std::string text_of_checkpoints(const Families& families, const Family& family) {
  const auto total = [&](std::int32_t number) {
    const StackCounts& counts = families.checkpointed(family, number);
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  if (total(family.checkpointed.back()) == 0) return "none";
  std::string ways;
  for (const CheckpointWay& way : family.ways) ways += (ways.empty() ? "" : " or ") + to_text(way);
  if (family.order == 0) return fmt::format("{} of the first {} blocks", ways, join(family.checkpointed));
  std::vector<std::string> numbers;
  for (const std::int32_t number : family.checkpointed) {
    numbers.push_back(fmt::format("{}", fmt::join(families.checkpointed(family, number), " + ")));
  }
  return fmt::format("{} of {} blocks", ways, join(numbers));
}

}  // namespace

std::vector<std::string> describe(const Space& space, const Model& model, const Cluster& cluster) {
  const auto families = families_of(space, model, cluster);
  if (!families) return {};
  std::vector<std::string> meshes, wraps, reshards, checkpoints, offloads, batches, syncs, prefetches;
  const auto add = [](std::vector<std::string>& texts, std::string text) {
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
  };
  for (const NamedWrapping& wrapping : families->wrappings) wraps.push_back(wrapping.label);
  for (const Family& family : families->families) {
    add(meshes, fmt::format("{} x {}", family.mesh.dp_replicate(), family.mesh.dp_shard()));
    add(reshards, family.reshard == Kind::Smaller ? fmt::format("to {}", family.reshard_world_size)
                                                  : fmt::format("all but the last {} units", join(family.kept)));
    add(checkpoints, text_of_checkpoints(*families, family));
    add(offloads, family.cpu_offload ? "yes" : "no");
    if (family.micro_batch > 0) add(batches, fmt::format("{} x {}", family.micro_batch, family.accumulation));
    if (family.accumulation > 1) add(syncs, family.sync_every_micro_batch ? "every micro-batch" : "the last one");
    add(prefetches, fmt::format("{} forward and {} backward", family.forward_prefetch, family.backward_prefetch));
  }
  std::vector<std::string> lines = {"mesh (replicate x shard): " + join(meshes), "units: " + join(wraps),
                                    "reshard after forward: " + join(reshards), "checkpoint: " + join(checkpoints),
                                    "CPU offload: " + join(offloads)};
  if (!batches.empty()) lines.push_back("micro-batch x accumulation: " + join(batches));
  if (!syncs.empty()) lines.push_back("gradients reduced after: " + join(syncs));
  lines.push_back("prefetch: " + join(prefetches));
  for (const FrameworkArguments& arguments : families->arguments) {
    if (families->arguments.size() == 1) break;
    const std::vector<std::string> texts = texts_of_arguments(families->framework, arguments);
    lines.push_back(fmt::format("arguments: {}", texts.empty() ? "the defaults" : join(texts)));
  }
  lines.push_back(fmt::format("plans: {}", families->size()));
  return lines;
}

}  // namespace fsdp::planner
