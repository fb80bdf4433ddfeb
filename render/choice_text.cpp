#include "render/choice_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/base/dtype.h"
#include "core/base/parse_units.h"
#include "core/plan/plan_names.h"
#include "planner/space/choice_table.h"
#include "render/read_value.h"

namespace fsdp::render {

namespace {

constexpr EnumName<planner::Precision> kPrecisions[] = {
    {planner::Precision::BFloat16, "bf16"},    {planner::Precision::Mixed, "mixed"},
    {planner::Precision::Float16, "fp16"},     {planner::Precision::MixedFloat16, "fp16_mixed"},
    {planner::Precision::Float32, "fp32"},     {planner::Precision::Autocast, "autocast"},
    {planner::Precision::Mixed, "bf16_mixed"}, {planner::Precision::Accelerate, "accelerate"},
};
constexpr EnumTable<planner::Precision> kPrecisionTable{"precision", kPrecisions};

constexpr EnumName<planner::GradientSync> kGradientSyncs[] = {{planner::GradientSync::Every, "every"},
                                                              {planner::GradientSync::Last, "last"}};
constexpr EnumName<planner::DdpArguments> kDdpArguments[] = {{planner::DdpArguments::Searched, "searched"},
                                                             {planner::DdpArguments::Defaults, "defaults"},
                                                             {planner::DdpArguments::FindUnused, "find-unused"}};
constexpr EnumTable<planner::DdpArguments> kDdpArgumentsTable{"choice of DDP's arguments", kDdpArguments};
constexpr EnumTable<planner::GradientSync> kGradientSyncTable{"way to reduce gradients", kGradientSyncs};

/// Any integer: the cluster reports machines without GPUs itself.
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

Result<planner::GradientClipping> read_clipping(std::string_view text, std::string_view where) {
  if (text == "none") return planner::GradientClipping{};
  FSDP_TRY(const double norm, read_number_above_zero(text, where));
  return planner::GradientClipping{norm};
}

Result<double> read_share(const std::string& text, std::string_view where) {
  const std::optional<double> share = parse_number(text);
  if (share) return *share;
  return failure(std::string(where), fmt::format("\"{}\" is not a number.", text), "Write it as 0.035.");
}

Result<void> read_sizes(std::span<const std::string> texts, std::string_view where, std::vector<Dimension>& sizes) {
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
  sizes = std::move(dimensions);
  return {};
}

/// A name from other programs. Its error names the equivalent here.
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

constexpr std::string_view kProjected =
    "Optimizers that project gradients are not predicted. The smallest states are those of adafactor and adamw_8bit.";
constexpr OtherName kOtherOptimizers[] = {
    {"adamw8bit", "Write adamw_8bit."},
    {"adam8bit", "Write adam_8bit."},
    {"lion", "Write lion_32bit or lion_8bit, of bitsandbytes."},
    {"paged_adamw", "Write paged_adamw_32bit or paged_adamw_8bit."},
    {"muon", "Write --muon yes: Muon updates matrices, and --optimizer the rest."},
    {"galore_adamw", kProjected},
    {"galore_adamw_8bit", kProjected},
    {"galore_adafactor", kProjected},
    {"apollo_adamw", kProjected},
    {"adamw_torch_fused", "Write --optimizer adamw --optimizer-impl fused."},
    {"adamw_fused", "Write --optimizer adamw --optimizer-impl fused."},
};
constexpr OtherName kOtherPackedAttentions[] = {{"flex_attention", "Write flex."},
                                                {"block_causal", "Write flex."},
                                                {"flash_attention_2", "Write flash_attn."},
                                                {"fa2", "Write flash_attn."},
                                                {"eager", "Write sdpa, which takes a mask, too."}};
constexpr OtherName kOtherAttentions[] = {{"flash_attention_2", "Write flash_attn."},
                                          {"fa2", "Write flash_attn."},
                                          {"sdpa", "Write automatic, PyTorch's choice of its kernels."},
                                          {"flex_attention", "Write --packing N --packed-attention flex."}};
constexpr OtherName kOtherStates[] = {
    {"8bit",
     "Write --optimizer adamw_8bit (bitsandbytes, for FSDP1 and DDP) or adamw_torch_8bit (torchao, for FSDP2)."},
};
constexpr std::string_view kNoFloat8 =
    "Such a precision is not modeled. Known are bf16, mixed (bf16 with fp32 weights), fp16, fp16-mixed and fp32.";
constexpr std::string_view kFloat8Layers =
    "Write --fp8 tensorwise beside --precision mixed or bf16: linear layers multiply in 8-bit floats.";
constexpr OtherName kOtherPrecisions[] = {{"fp8", kFloat8Layers},
                                          {"float8", kFloat8Layers},
                                          {"int8", kNoFloat8},
                                          {"8bit", kNoFloat8},
                                          {"4bit", kNoFloat8},
                                          {"nf4", kNoFloat8},
                                          {"amp", "Write mixed, or fp16-mixed."}};

Result<planner::OffloadChoice> read_offload(const std::string& text, std::string_view where) {
  if (text == "nvme") return planner::OffloadChoice(true, true);
  if (text == "cpu") return planner::OffloadChoice(true);
  if (const Result<bool> is_on = read_yes_or_no(text, where)) return planner::OffloadChoice(*is_on);
  return failure(std::string(where), fmt::format("\"{}\" is none of yes, no and nvme.", text),
                 "Write yes, no, or with --runtime zero3 nvme.");
}

Result<Reserve> read_reserve(const std::string& text, std::string_view where) {
  if (!text.ends_with('%')) {
    const Result<Bytes> size = parse_size(text, where);
    if (size) return Reserve{.bytes = *size};
    return failure(std::string(where), size.error().front().what, "Write a size such as 30G, or a share such as 40%.");
  }
  const std::optional<double> percent = parse_number(std::string_view(text).substr(0, text.size() - 1));
  if (percent && *percent > 0 && *percent < 100) return Reserve{.share = *percent / 100};
  return failure(std::string(where), fmt::format("\"{}\" is not a share of a GPU's memory.", text),
                 "Write it as 40%: above 0 and below 100.");
}

/// The names of an enum, if its text can have no other form.
template <class E>
constexpr std::nullptr_t kTableOf = nullptr;
template <>
constexpr const EnumTable<IntraLink>* kTableOf<IntraLink> = &kIntraLinkNames;
template <>
constexpr const EnumTable<NetworkKind>* kTableOf<NetworkKind> = &kNetworkNames;
template <>
constexpr const EnumTable<OptimizerImplementation>* kTableOf<OptimizerImplementation> = &kOptimizerImplementationTable;
template <>
constexpr const EnumTable<OptimizerStates>* kTableOf<OptimizerStates> = &kOptimizerStatesTable;
template <>
constexpr const EnumTable<fsdp::Initialization>* kTableOf<fsdp::Initialization> = &kInitializationTable;
template <>
constexpr const EnumTable<planner::DdpArguments>* kTableOf<planner::DdpArguments> = &kDdpArgumentsTable;
template <>
constexpr const EnumTable<planner::GradientSync>* kTableOf<planner::GradientSync> = &kGradientSyncTable;
template <>
constexpr const EnumTable<PackedAttention>* kTableOf<PackedAttention> = &kPackedAttentionTable;
template <>
constexpr const EnumTable<AttentionBackend>* kTableOf<AttentionBackend> = &kAttentionBackendTable;
template <class E>
concept HasTable = !std::is_null_pointer_v<std::remove_const_t<decltype(kTableOf<E>)>>;

// The type of its member selects the reader of a choice.
Result<int> read_as(const planner::ChoiceRow& row, const std::string& text, int /*type*/) {
  return read_small_count(text, place_of(row));
}
Result<std::int64_t> read_as(const planner::ChoiceRow& row, const std::string& text, std::int64_t /*type*/) {
  const planner::ChoiceRules& rules = row.rules;
  if (rules.is_length) return read_length(text, place_of(row));
  return read_count(text, place_of(row), rules.least, rules.most > 0 ? rules.most : kLargestCount);
}
Result<double> read_as(const planner::ChoiceRow& row, const std::string& text, double /*type*/) {
  return read_share(text, place_of(row));
}
Result<bool> read_as(const planner::ChoiceRow& row, const std::string& text, bool /*type*/) {
  return read_yes_or_no(text, place_of(row));
}
Result<std::string> read_as(const planner::ChoiceRow& row, const std::string& text, const std::string& /*type*/) {
  if (row.rules.check != nullptr) {
    if (Result<void> checked = row.rules.check(text, place_of(row)); !checked) return tl::unexpected(checked.error());
  }
  return text;
}
Result<Bytes> read_as(const planner::ChoiceRow& row, const std::string& text, Bytes /*type*/) {
  return parse_size(text, place_of(row));
}
Result<Reserve> read_as(const planner::ChoiceRow& row, const std::string& text, const Reserve& /*type*/) {
  return read_reserve(text, place_of(row));
}
Result<BytesPerSecond> read_as(const planner::ChoiceRow& row, const std::string& text, BytesPerSecond /*type*/) {
  return parse_bandwidth(text, place_of(row));
}
template <HasTable E>
Result<E> read_as(const planner::ChoiceRow& row, const std::string& text, E /*type*/) {
  return read_name(text, *kTableOf<E>, place_of(row));
}
Result<planner::Precision> read_as(const planner::ChoiceRow& row, const std::string& text,
                                   planner::Precision /*type*/) {
  return read_name_of(text, kPrecisionTable, place_of(row), kOtherPrecisions);
}
Result<OptimizerKind> read_as(const planner::ChoiceRow& row, const std::string& text, OptimizerKind /*type*/) {
  // transformers' names of TrainingArguments.optim, too.
  for (const OptimizerRow& optimizer : kOptimizerRows) {
    if (!text.empty() && optimizer.hugging_face == text) return optimizer.kind;
  }
  return read_name_of(text, kOptimizerKindTable, place_of(row), kOtherOptimizers);
}
Result<PackedAttention> read_as(const planner::ChoiceRow& row, const std::string& text, PackedAttention /*type*/) {
  return read_name_of(text, kPackedAttentionTable, place_of(row), kOtherPackedAttentions);
}
Result<AttentionBackend> read_as(const planner::ChoiceRow& row, const std::string& text, AttentionBackend /*type*/) {
  return read_name_of(text, kAttentionBackendTable, place_of(row), kOtherAttentions);
}
Result<OptimizerStates> read_as(const planner::ChoiceRow& row, const std::string& text, OptimizerStates /*type*/) {
  return read_name_of(text, kOptimizerStatesTable, place_of(row), kOtherStates);
}
Result<Framework> read_as(const planner::ChoiceRow& row, const std::string& text, Framework /*type*/) {
  return read_runtime(text, place_of(row));
}
Result<Dtype> read_as(const planner::ChoiceRow& row, const std::string& text, Dtype /*type*/) {
  return read_dtype(text, place_of(row));
}
Result<planner::GradientClipping> read_as(const planner::ChoiceRow& row, const std::string& text,
                                          const planner::GradientClipping& /*type*/) {
  return read_clipping(text, place_of(row));
}
Result<planner::OffloadChoice> read_as(const planner::ChoiceRow& row, const std::string& text,
                                       const planner::OffloadChoice& /*type*/) {
  return read_offload(text, place_of(row));
}
Result<planner::ReshardChoice> read_as(const planner::ChoiceRow& /*row*/, const std::string& text,
                                       const planner::ReshardChoice& /*type*/) {
  return planner::parse_reshard(text);
}
Result<planner::Wrap> read_as(const planner::ChoiceRow& /*row*/, const std::string& text,
                              const planner::Wrap& /*type*/) {
  return planner::parse_wrap(text);
}
Result<Loss> read_as(const planner::ChoiceRow& /*row*/, const std::string& text, const Loss& /*type*/) {
  return parse_loss(text);
}
Result<planner::CheckpointChoice> read_as(const planner::ChoiceRow& /*row*/, const std::string& text,
                                          const planner::CheckpointChoice& /*type*/) {
  return planner::parse_checkpoint(text);
}
Result<LoraOptions> read_as(const planner::ChoiceRow& row, const std::string& text, const LoraOptions& /*type*/) {
  return parse_lora(text, place_of(row));
}
Result<LigerKernels> read_as(const planner::ChoiceRow& row, const std::string& text, const LigerKernels& /*type*/) {
  return parse_liger(text, place_of(row));
}
Result<Float8Training> read_as(const planner::ChoiceRow& row, const std::string& text, const Float8Training& /*type*/) {
  return parse_float8(text, place_of(row));
}
Result<planner::ExpertDegrees> read_as(const planner::ChoiceRow& row, const std::string& text,
                                       const planner::ExpertDegrees& /*type*/) {
  planner::ExpertDegrees degrees;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    FSDP_TRY(const std::int64_t number, read_count(std::string_view(text).substr(begin, end - begin), place_of(row)));
    degrees.ranks.push_back(number);
    begin = end + 1;
  }
  std::sort(degrees.ranks.begin(), degrees.ranks.end());
  degrees.ranks.erase(std::unique(degrees.ranks.begin(), degrees.ranks.end()), degrees.ranks.end());
  return degrees;
}
Result<Quantization> read_as(const planner::ChoiceRow& row, const std::string& text, const Quantization& /*type*/) {
  return parse_quantization(text, place_of(row));
}

Result<void> read_into(const planner::ChoiceRow& row, std::span<const std::string> texts,
                       std::vector<Dimension>& dimensions) {
  return read_sizes(texts, place_of(row), dimensions);
}
Result<void> read_into(const planner::ChoiceRow& /*row*/, std::span<const std::string> texts,
                       std::vector<std::string>& patterns) {
  patterns.assign(texts.begin(), texts.end());
  return {};
}
Result<void> read_into(const planner::ChoiceRow& row, std::span<const std::string> texts,
                       std::vector<OtherModel>& also) {
  Errors errors;
  std::vector<OtherModel> read;
  for (const std::string& text : texts) {
    Result<OtherModel> other = parse_other_model(text, place_of(row));
    if (other) {
      read.push_back(*std::move(other));
    } else {
      append(errors, std::move(other).error());
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  also = std::move(read);
  return {};
}
template <class T>
Result<void> read_into(const planner::ChoiceRow& row, std::span<const std::string> texts, std::optional<T>& value) {
  if (texts.empty()) {
    value = std::nullopt;
    return {};
  }
  FSDP_TRY(value, read_as(row, texts.back(), T{}));
  return {};
}

// And the writer.
std::string text_as(const std::string& text) {
  return text;
}
template <class T>
requires std::is_arithmetic_v<T> std::string text_as(T number) {
  return fmt::format("{}", number);
}
std::string text_as(bool is_on) {
  return is_on ? "yes" : "no";
}
std::string text_as(Bytes size) {
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  const bool is_whole = size.count() > 0 && size.count() % kGib == 0;
  return is_whole ? fmt::format("{}G", size.count() / kGib) : exact_size(size);
}
std::string text_as(const Reserve& reserve) {
  return reserve.share > 0 ? fmt::format("{:.6g}%", 100 * reserve.share) : text_as(reserve.bytes);
}
std::string text_as(BytesPerSecond bandwidth) {
  return exact_bandwidth(bandwidth);
}
template <HasTable E>
std::string text_as(E value) {
  return std::string(name_of(*kTableOf<E>, value));
}
std::string text_as(planner::Precision precision) {
  std::string text(name_of(kPrecisionTable, precision));
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}
std::string text_as(OptimizerKind kind) {
  return std::string(name_of(kOptimizerKindTable, kind));
}
std::string text_as(Framework framework) {
  return std::string(name_of(kRuntimeTable, framework));
}
std::string text_as(Dtype dtype) {
  return std::string(name_of(dtype));
}
std::string text_as(const planner::ExpertDegrees& degrees) {
  return fmt::format("{}", fmt::join(degrees.ranks, ","));
}
std::string text_as(const planner::GradientClipping& clip) {
  return clip.norm ? fmt::format("{}", *clip.norm) : "none";
}
std::string text_as(const planner::OffloadChoice& offload) {
  return offload.to_drive ? "nvme" : offload.is_on ? "yes" : "no";
}
template <class T>
requires requires(T value) {
  to_text(value);
}
std::string text_as(const T& value) {
  return to_text(value);
}

template <class T>
std::vector<std::string> texts_as(const std::optional<T>& value) {
  return value ? std::vector{text_as(*value)} : std::vector<std::string>();
}
std::vector<std::string> texts_as(const std::vector<std::string>& patterns) {
  return patterns;
}
std::vector<std::string> texts_as(const std::vector<OtherModel>& also) {
  std::vector<std::string> texts;
  for (const OtherModel& each : also) texts.push_back(to_text(each));
  return texts;
}
std::vector<std::string> texts_as(const std::vector<Dimension>& dimensions) {
  std::vector<std::string> texts;
  for (const Dimension& each : dimensions) texts.push_back(fmt::format("{}={}", each.name, each.value));
  return texts;
}

}  // namespace

Result<void> read_choice(planner::PlanChoice choice, std::span<const std::string> texts,
                         planner::PlanChoices& choices) {
  const planner::ChoiceRow& row = row_of(choice);
  return std::visit([&](auto member) { return read_into(row, texts, choices.*member); }, row.member);
}

std::vector<std::string> texts_of(planner::PlanChoice choice, const planner::PlanChoices& choices) {
  return std::visit([&](auto member) { return texts_as(choices.*member); }, row_of(choice).member);
}

}  // namespace fsdp::render
