#include "render/choice_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <optional>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/limits.h"
#include "core/base/parse_units.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version.h"
#include "render/read_value.h"
#include "simulator/allocator/allocator_settings.h"

namespace fsdp::planner {

namespace {

constexpr EnumName<Precision> kPrecisions[] = {
    {Precision::BFloat16, "bf16"},           {Precision::Mixed, "mixed"},  {Precision::Float16, "fp16"},
    {Precision::MixedFloat16, "fp16_mixed"}, {Precision::Float32, "fp32"}, {Precision::Mixed, "bf16_mixed"},
};
constexpr EnumTable<Precision> kPrecisionTable{"precision", kPrecisions};

constexpr EnumName<GradientSync> kGradientSyncs[] = {{GradientSync::Every, "every"}, {GradientSync::Last, "last"}};
constexpr EnumTable<GradientSync> kGradientSyncTable{"way to reduce gradients", kGradientSyncs};

template <class T>
Result<void> put(Result<T> read, std::optional<T>& value) {
  if (!read) return tl::unexpected(std::move(read).error());
  value = *std::move(read);
  return {};
}

/// Any integer: a cluster has its own words for a machine without GPUs.
Result<int> read_small_count(std::string_view text, std::string_view where) {
  const std::optional<std::int64_t> count = parse_integer(text);
  if (!count) return failure(std::string(where), fmt::format("\"{}\" is not a whole number.", text));
  using Limits = std::numeric_limits<int>;
  return static_cast<int>(std::clamp<std::int64_t>(*count, Limits::min(), Limits::max()));
}

Result<Dtype> read_dtype(std::string_view text, std::string_view where) {
  const std::optional<Dtype> dtype = parse_dtype(text);
  if (dtype && is_floating_point(*dtype)) return *dtype;
  return failure(std::string(where), fmt::format("\"{}\" is not a floating point dtype.", text),
                 "Write float32, bfloat16 or float16.");
}

Result<GradientClipping> read_clipping(std::string_view text, std::string_view where) {
  if (text == "none") return GradientClipping{};
  FSDP_TRY(const double norm, read_number_above_zero(text, where));
  return GradientClipping{norm};
}

Result<double> read_share(const std::string& text, std::string_view where) {
  const std::optional<double> share = parse_number(text);
  if (share) return *share;
  return failure(std::string(where), fmt::format("\"{}\" is not a number.", text), "Write it as 0.035.");
}

Result<std::string> read_flavor(const std::string& text, std::string_view where) {
  const Result<Runtime> runtime = runtime_of_flavor(text);
  if (runtime) return text;
  return failure(std::string(where), runtime.error()[0].what, runtime.error()[0].hint);
}

Result<std::string> read_torch(const std::string& text, std::string_view where) {
  const Result<TorchVersion> version = find_torch_version(text);
  if (version) return text;
  return failure(std::string(where), version.error()[0].what, version.error()[0].hint);
}

Result<std::string> read_allocator_settings(const std::string& text) {
  const auto settings = simulator::parse_allocator_settings(text);
  if (settings) return text;
  return tl::unexpected(settings.error());
}

Result<void> read_sizes(std::span<const std::string> texts, std::string_view where, PlanChoices& choices) {
  Errors errors;
  std::vector<Dimension> dimensions;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    const std::optional<double> value =
        equals == std::string::npos ? std::nullopt : parse_number(std::string_view(text).substr(equals + 1));
    if (equals == 0 || !value || *value <= 0) {
      errors.push_back({std::string(where), fmt::format("\"{}\" is not a name and a number above 0.", text),
                        "Write it as --set seconds=10."});
      continue;
    }
    dimensions.push_back({text.substr(0, equals), *value});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  choices.dimensions = std::move(dimensions);
  return {};
}

/// A name that other programs have, and what asks for the same here; else the error of an unknown name.
struct OtherName {
  std::string_view name;
  std::string_view hint;
};
template <class E, std::size_t kSize>
Result<E> read_name_of(const std::string& text, const EnumTable<E>& table, std::string_view where,
                       const OtherName (&others)[kSize]) {
  Result<E> read = read_name(text, table, where);
  if (read) return read;
  for (const OtherName& other : others) {
    if (is_same_name(text, other.name)) {
      return failure(std::string(where), read.error().front().what, std::string(other.hint));
    }
  }
  return read;
}

constexpr std::string_view kEightBit =
    "8-bit states are --optimizer-state-dtype 8bit, beside --optimizer adamw or adam.";
constexpr OtherName kOtherOptimizers[] = {
    {"adamw_8bit", kEightBit},
    {"adamw8bit", kEightBit},
    {"adam_8bit", kEightBit},
    {"adam8bit", kEightBit},
    {"adamw_bnb_8bit", kEightBit},
    {"paged_adamw_8bit",
     "Paged states are not modeled. "
     "8-bit states are --optimizer-state-dtype 8bit."},
    {"adamw_torch", "Write adamw."},
    {"adamw_torch_fused", "Write --optimizer adamw --optimizer-impl fused."},
    {"adamw_fused", "Write --optimizer adamw --optimizer-impl fused."},
};
constexpr std::string_view kNoFloat8 =
    "8-bit floats are not modeled. Known are bf16, mixed (bf16 with fp32 weights), fp16, fp16-mixed and fp32.";
constexpr OtherName kOtherPrecisions[] = {{"fp8", kNoFloat8},
                                          {"float8", kNoFloat8},
                                          {"int8", kNoFloat8},
                                          {"8bit", kNoFloat8},
                                          {"4bit", kNoFloat8},
                                          {"nf4", kNoFloat8},
                                          {"amp", "Write mixed, or fp16-mixed."}};

Result<OffloadChoice> read_offload(const std::string& text, std::string_view where) {
  if (text == "nvme") return OffloadChoice(true, true);
  if (text == "cpu") return OffloadChoice(true);
  if (const Result<bool> is_on = read_yes_or_no(text, where)) return OffloadChoice(*is_on);
  return failure(std::string(where), fmt::format("\"{}\" is none of yes, no and nvme.", text),
                 "Write yes, no, or with --runtime zero3 nvme.");
}

Result<void> read_machine_choice(PlanChoice choice, const std::string& text, PlanChoices& choices) {
  const std::string_view where = place_of(choice);
  switch (choice) {
    case PlanChoice::Gpus:
      return put(read_small_count(text, where), choices.gpus);
    case PlanChoice::Nodes:
      return put(read_small_count(text, where), choices.nodes);
    case PlanChoice::GpuName:
      choices.gpu_name = text;
      return {};
    case PlanChoice::Memory:
      return put(parse_size(text, where), choices.memory);
    case PlanChoice::ClusterFile:
      choices.cluster_file = text;
      return {};
    case PlanChoice::IntraLinkName:
      return put(read_name(text, kIntraLinkNames, where), choices.intra_link);
    case PlanChoice::IntraBandwidth:
      return put(parse_bandwidth(text, where), choices.intra_bandwidth);
    case PlanChoice::BusBandwidth:
      return put(parse_bandwidth(text, where), choices.bus_bandwidth);
    case PlanChoice::NetworkName:
      return put(read_name(text, kNetworkNames, where), choices.network);
    case PlanChoice::NicBandwidth:
      return put(parse_bandwidth(text, where), choices.nic_bandwidth);
    case PlanChoice::GpusPerNic:
      return put(read_small_count(text, where), choices.gpus_per_nic);
    case PlanChoice::Sharp:
      return put(read_yes_or_no(text, where), choices.sharp);
    case PlanChoice::NcclVersion:
      choices.nccl_version = text;
      return {};
    case PlanChoice::NcclAlgorithms:
      choices.nccl_algorithms = text;
      return {};
    case PlanChoice::NcclProtocols:
      choices.nccl_protocols = text;
      return {};
    case PlanChoice::NodeSpread:
      return put(read_share(text, where), choices.node_spread);
    case PlanChoice::HostMemory:
      return put(parse_size(text, where), choices.host_memory);
    case PlanChoice::NvmeBandwidth:
      return put(parse_bandwidth(text, where), choices.nvme_bandwidth);
    case PlanChoice::NvmeCapacity:
      return put(parse_size(text, where), choices.nvme_capacity);
    default:
      return {};
  }
}

Result<void> read_work_choice(PlanChoice choice, const std::string& text, PlanChoices& choices) {
  const std::string_view where = place_of(choice);
  switch (choice) {
    case PlanChoice::Recipe:
      choices.recipe = text;
      return {};
    case PlanChoice::Batch:
      return put(read_count(text, where), choices.batch);
    case PlanChoice::Sequence:
      return put(read_length(text, where), choices.sequence);
    case PlanChoice::GlobalBatch:
      return put(read_count(text, where), choices.global_batch);
    case PlanChoice::Accumulate:
      return put(read_count(text, where, 1, kMostMicroBatches), choices.accumulation);
    case PlanChoice::Precision:
      return put(read_name_of(text, kPrecisionTable, where, kOtherPrecisions), choices.precision);
    case PlanChoice::ReduceDtype:
      return put(read_dtype(text, where), choices.reduce_dtype);
    case PlanChoice::OptimizerName:
      return put(read_name_of(text, kOptimizerKindTable, where, kOtherOptimizers), choices.optimizer);
    case PlanChoice::OptimizerImpl:
      return put(read_name(text, kOptimizerImplementationTable, where), choices.optimizer_implementation);
    case PlanChoice::OptimizerStatesName:
      return put(read_name(text, kOptimizerStatesTable, where), choices.optimizer_states);
    case PlanChoice::Clip:
      return put(read_clipping(text, where), choices.clip);
    case PlanChoice::Flavor:
      return put(read_flavor(text, where), choices.flavor);
    case PlanChoice::Initialization:
      return put(read_name(text, kInitializationTable, where), choices.initialization);
    case PlanChoice::CrossEntropy:
      return put(read_name(text, kCrossEntropyTable, where), choices.cross_entropy);
    case PlanChoice::AllocConf:
      return put(read_allocator_settings(text), choices.allocator_settings);
    case PlanChoice::Torch:
      return put(read_torch(text, where), choices.torch);
    default:
      return {};
  }
}

Result<void> read_plan_choice(PlanChoice choice, const std::string& text, PlanChoices& choices) {
  const std::string_view where = place_of(choice);
  switch (choice) {
    case PlanChoice::Runtime:
      return put(read_runtime(text, where), choices.runtime);
    case PlanChoice::DeepSpeedFile:
      choices.deepspeed_file = text;
      return {};
    case PlanChoice::Strategy:
      choices.strategy = text;
      return {};
    case PlanChoice::Shard:
      return put(read_count(text, where), choices.shard);
    case PlanChoice::Replicate:
      return put(read_count(text, where), choices.replicate);
    case PlanChoice::Reshard:
      return put(parse_reshard(text), choices.reshard);
    case PlanChoice::Wrap:
      return put(parse_wrap(text), choices.wrap);
    case PlanChoice::WrapEnds:
      return put(read_yes_or_no(text, where), choices.wrap_ends);
    case PlanChoice::Checkpoint:
      return put(parse_checkpoint(text), choices.checkpoint);
    case PlanChoice::Offload:
      return put(read_offload(text, where), choices.cpu_offload);
    case PlanChoice::GradientSync:
      return put(read_name(text, kGradientSyncTable, where), choices.gradient_sync);
    case PlanChoice::Prefetch:
      return put(read_count(text, where, 0), choices.forward_prefetch);
    case PlanChoice::BackwardPrefetch:
      return put(read_count(text, where, 0), choices.backward_prefetch);
    case PlanChoice::ReduceScatterBuffers:
      return put(read_count(text, where), choices.reduce_scatter_buffers);
    case PlanChoice::SeparateReduceScatter:
      return put(read_yes_or_no(text, where), choices.separate_reduce_scatter);
    default:
      return {};
  }
}

std::vector<std::string> text_of(const std::optional<std::string>& name) {
  return name ? std::vector{*name} : std::vector<std::string>();
}
template <class Integer>
requires(std::integral<Integer> &&
         !std::same_as<Integer, bool>) std::vector<std::string> text_of(const std::optional<Integer>& count) {
  return count ? std::vector{fmt::format("{}", *count)} : std::vector<std::string>();
}
std::vector<std::string> text_of(const std::optional<bool>& is_on) {
  return is_on ? std::vector<std::string>{*is_on ? "yes" : "no"} : std::vector<std::string>();
}
std::vector<std::string> text_of(const std::optional<OffloadChoice>& offload) {
  if (!offload) return {};
  return {offload->to_drive ? "nvme" : offload->is_on ? "yes" : "no"};
}
std::vector<std::string> text_of(const std::optional<Bytes>& size) {
  if (!size) return {};
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  const bool is_whole = size->count() > 0 && size->count() % kGib == 0;
  return {is_whole ? fmt::format("{}G", size->count() / kGib) : exact_size(*size)};
}
std::vector<std::string> text_of(const std::optional<BytesPerSecond>& bandwidth) {
  return bandwidth ? std::vector{exact_bandwidth(*bandwidth)} : std::vector<std::string>();
}
template <class E>
std::vector<std::string> text_of(const std::optional<E>& value, const EnumTable<E>& table) {
  return value ? std::vector{std::string(name_of(table, *value))} : std::vector<std::string>();
}
std::vector<std::string> text_of(const std::optional<Precision>& precision) {
  std::vector<std::string> texts = text_of(precision, kPrecisionTable);
  for (std::string& text : texts) std::replace(text.begin(), text.end(), '_', '-');
  return texts;
}
std::vector<std::string> text_of(const std::optional<GradientClipping>& clip) {
  if (!clip) return {};
  return {clip->norm ? fmt::format("{}", *clip->norm) : "none"};
}
template <class T>
requires requires(T value) {
  to_text(value);
}
std::vector<std::string> text_of(const std::optional<T>& value) {
  return value ? std::vector{to_text(*value)} : std::vector<std::string>();
}
std::vector<std::string> texts_of(const std::vector<Dimension>& dimensions) {
  std::vector<std::string> texts;
  for (const Dimension& each : dimensions) texts.push_back(fmt::format("{}={}", each.name, each.value));
  return texts;
}

std::vector<std::string> texts_of_machines(PlanChoice choice, const PlanChoices& choices) {
  switch (choice) {
    case PlanChoice::Gpus:
      return text_of(choices.gpus);
    case PlanChoice::Nodes:
      return text_of(choices.nodes);
    case PlanChoice::GpuName:
      return text_of(choices.gpu_name);
    case PlanChoice::Memory:
      return text_of(choices.memory);
    case PlanChoice::ClusterFile:
      return text_of(choices.cluster_file);
    case PlanChoice::IntraLinkName:
      return text_of(choices.intra_link, kIntraLinkNames);
    case PlanChoice::IntraBandwidth:
      return text_of(choices.intra_bandwidth);
    case PlanChoice::BusBandwidth:
      return text_of(choices.bus_bandwidth);
    case PlanChoice::NetworkName:
      return text_of(choices.network, kNetworkNames);
    case PlanChoice::NicBandwidth:
      return text_of(choices.nic_bandwidth);
    case PlanChoice::GpusPerNic:
      return text_of(choices.gpus_per_nic);
    case PlanChoice::Sharp:
      return text_of(choices.sharp);
    case PlanChoice::NcclVersion:
      return text_of(choices.nccl_version);
    case PlanChoice::NcclAlgorithms:
      return text_of(choices.nccl_algorithms);
    case PlanChoice::NcclProtocols:
      return text_of(choices.nccl_protocols);
    case PlanChoice::NodeSpread:
      return choices.node_spread ? std::vector<std::string>{fmt::format("{}", *choices.node_spread)}
                                 : std::vector<std::string>{};
    case PlanChoice::HostMemory:
      return text_of(choices.host_memory);
    case PlanChoice::NvmeBandwidth:
      return text_of(choices.nvme_bandwidth);
    case PlanChoice::NvmeCapacity:
      return text_of(choices.nvme_capacity);
    default:
      return {};
  }
}

std::vector<std::string> texts_of_work(PlanChoice choice, const PlanChoices& choices) {
  switch (choice) {
    case PlanChoice::Recipe:
      return text_of(choices.recipe);
    case PlanChoice::Batch:
      return text_of(choices.batch);
    case PlanChoice::Sequence:
      return text_of(choices.sequence);
    case PlanChoice::GlobalBatch:
      return text_of(choices.global_batch);
    case PlanChoice::Accumulate:
      return text_of(choices.accumulation);
    case PlanChoice::SetDimension:
      return texts_of(choices.dimensions);
    case PlanChoice::Trainable:
      return choices.trainable;
    case PlanChoice::Freeze:
      return choices.frozen;
    case PlanChoice::Precision:
      return text_of(choices.precision);
    case PlanChoice::ReduceDtype:
      return choices.reduce_dtype ? std::vector{std::string(name_of(*choices.reduce_dtype))}
                                  : std::vector<std::string>();
    case PlanChoice::OptimizerName:
      return text_of(choices.optimizer, kOptimizerKindTable);
    case PlanChoice::OptimizerImpl:
      return text_of(choices.optimizer_implementation, kOptimizerImplementationTable);
    case PlanChoice::OptimizerStatesName:
      return text_of(choices.optimizer_states, kOptimizerStatesTable);
    case PlanChoice::Clip:
      return text_of(choices.clip);
    case PlanChoice::Flavor:
      return text_of(choices.flavor);
    case PlanChoice::Initialization:
      return text_of(choices.initialization, kInitializationTable);
    case PlanChoice::CrossEntropy:
      return text_of(choices.cross_entropy, kCrossEntropyTable);
    case PlanChoice::AllocConf:
      return text_of(choices.allocator_settings);
    case PlanChoice::Torch:
      return text_of(choices.torch);
    default:
      return {};
  }
}

std::vector<std::string> texts_of_plan(PlanChoice choice, const PlanChoices& choices) {
  switch (choice) {
    case PlanChoice::Runtime:
      return text_of(choices.runtime, kRuntimeTable);
    case PlanChoice::DeepSpeedFile:
      return text_of(choices.deepspeed_file);
    case PlanChoice::Strategy:
      return text_of(choices.strategy);
    case PlanChoice::Shard:
      return text_of(choices.shard);
    case PlanChoice::Replicate:
      return text_of(choices.replicate);
    case PlanChoice::Reshard:
      return text_of(choices.reshard);
    case PlanChoice::Wrap:
      return text_of(choices.wrap);
    case PlanChoice::WrapEnds:
      return text_of(choices.wrap_ends);
    case PlanChoice::Checkpoint:
      return text_of(choices.checkpoint);
    case PlanChoice::Offload:
      return text_of(choices.cpu_offload);
    case PlanChoice::GradientSync:
      return text_of(choices.gradient_sync, kGradientSyncTable);
    case PlanChoice::Prefetch:
      return text_of(choices.forward_prefetch);
    case PlanChoice::BackwardPrefetch:
      return text_of(choices.backward_prefetch);
    case PlanChoice::ReduceScatterBuffers:
      return text_of(choices.reduce_scatter_buffers);
    case PlanChoice::SeparateReduceScatter:
      return text_of(choices.separate_reduce_scatter);
    default:
      return {};
  }
}

}  // namespace

Result<void> read_choice(PlanChoice choice, std::span<const std::string> texts, PlanChoices& choices) {
  if (choice == PlanChoice::SetDimension) return read_sizes(texts, place_of(choice), choices);
  if (choice == PlanChoice::Trainable || choice == PlanChoice::Freeze) {
    auto& patterns = choice == PlanChoice::Trainable ? choices.trainable : choices.frozen;
    patterns.assign(texts.begin(), texts.end());
    return {};
  }
  if (texts.empty()) {
    clear(choices, choice);
    return {};
  }
  if (is_about_machines(choice)) return read_machine_choice(choice, texts.back(), choices);
  if (choice >= PlanChoice::Runtime) return read_plan_choice(choice, texts.back(), choices);
  return read_work_choice(choice, texts.back(), choices);
}

std::vector<std::string> texts_of(PlanChoice choice, const PlanChoices& choices) {
  if (is_about_machines(choice)) return texts_of_machines(choice, choices);
  if (choice >= PlanChoice::Runtime) return texts_of_plan(choice, choices);
  return texts_of_work(choice, choices);
}

}  // namespace fsdp::planner
