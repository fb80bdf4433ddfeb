// Reads what core/plan/plan_json.cpp writes. Only what the plan cannot go without must be there (the model's name, the
// mesh and the units); for the rest a missing key means the default of core/plan/plan.h, so that a plan can be written
// by hand.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "core/base/limits.h"
#include "core/base/name_ranges.h"
#include "core/base/object_fields.h"
#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_states_json.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan_json.h"
#include "core/plan/plan_json_model.h"
#include "core/plan/plan_json_zero.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version_json.h"

namespace fsdp {

namespace {

constexpr IntegerRange kCounts{0, std::int64_t{1} << 31};
constexpr RealRange kNotNegative{0, std::numeric_limits<double>::max()};

/// Marks values that may be null.
struct OrNull {};

bool read_json(const JsonValue& value, std::optional<Dtype>& out, JsonErrors& errors, OrNull /*unused*/) {
  out.reset();
  if (value.type == JsonType::Null) return true;
  if (!expect_type(value, JsonType::String, "a dtype or null", errors)) return false;
  out = parse_dtype(value.text);
  if (out && is_floating_point(*out)) return true;
  out.reset();
  return errors.add(value, fmt::format("\"{}\" is not a floating point dtype.", value.text),
                    "Write float32, bfloat16, float16 or float64.");
}

std::string schema_of(const std::optional<Dtype>& /*value*/, OrNull /*unused*/) {
  return R"("oneOf": [{"type": "null"}, {"enum": ["float32", "bfloat16", "float16", "float64"]}])";
}

/// A limit: a number above zero, or null.
bool read_json(const JsonValue& value, std::optional<double>& out, JsonErrors& errors, OrNull /*unused*/) {
  out.reset();
  if (value.type == JsonType::Null) return true;
  double number = 0;
  if (!read_json(value, number, errors, kNotNegative)) return false;
  if (number == 0) return errors.add(value, "The limit is 0.", "Write a number above 0, or null for no limit.");
  out = number;
  return true;
}

std::string schema_of(const std::optional<double>& /*value*/, OrNull /*unused*/) {
  return R"("oneOf": [{"type": "null"}, {"type": "number", "exclusiveMinimum": 0}])";
}

/// A number of whole MiB, or null.
bool read_json(const JsonValue& value, std::optional<std::int64_t>& out, JsonErrors& errors, OrNull /*unused*/) {
  out.reset();
  if (value.type == JsonType::Null) return true;
  std::int64_t number = 0;
  if (!read_json(value, number, errors, IntegerRange{1, 1 << 20})) return false;
  out = number;
  return true;
}

std::string schema_of(const std::optional<std::int64_t>& /*value*/, OrNull /*unused*/) {
  return R"("oneOf": [{"type": "null"}, {"type": "integer", "minimum": 1, "maximum": 1048576}])";
}

template <class T>
std::string default_of(const std::optional<T>& /*value*/, OrNull /*unused*/) {
  return "null";
}

/// Marks a list of module names, with rows such as "model.layers.{0..27}".
struct Names {};

bool read_json(const JsonValue& value, std::vector<std::string>& out, JsonErrors& errors, Names /*unused*/) {
  std::vector<std::string> written;
  if (!read_json(value, written, errors)) return false;
  out.clear();
  bool good = true;
  for (std::size_t i = 0; i < written.size(); ++i) {
    Result<std::vector<std::string>> names = unfold_name(written[i], "");
    if (!names) {
      good = errors.add(value.elements[i], names.error()[0].what, names.error()[0].hint);
      continue;
    }
    if (static_cast<std::int64_t>(out.size() + names->size()) > kMostNamesOfARange) {
      return errors.add(value, "The list names more than a million modules.");
    }
    out.insert(out.end(), names->begin(), names->end());
  }
  return good;
}

constexpr std::string_view kModuleName =
    "Fully qualified name of a module; \"\" is the root. A row of modules: \"model.layers.{0..27}\", with a step "
    "\"model.layers.{0..26..2}\".";

std::string schema_of(const std::vector<std::string>& /*value*/, Names /*unused*/) {
  return fmt::format(R"x("type": "array", "minItems": 1, "items": {{"type": "string", "description": {},
                         "examples": ["model.layers.{{0..27}}", "lm_head", ""]}})x",
                     json_quoted(kModuleName));
}

constexpr std::string_view kReshardSchema =
    R"("default": "default", "oneOf": [
         {"const": true, "description": "Free the unsharded parameters after forward and gather them again in backward."},
         {"const": false, "description": "Keep the unsharded parameters until backward."},
         {"const": "default", "description": "True, but false for the root."},
         {"type": "integer", "minimum": 2, "description": "Keep a shard over that smaller world size."}])";

bool read_reshard(const JsonValue& value, ReshardAfterForward& reshard, JsonErrors& errors) {
  using Kind = ReshardAfterForward::Kind;
  if (value.type == JsonType::Bool) {
    reshard.kind = value.boolean ? Kind::Always : Kind::Never;
  } else if (value.type == JsonType::String && value.text == "default") {
    reshard.kind = Kind::Default;
  } else if (value.type == JsonType::Number && value.is_integer && value.integer >= 2) {
    reshard = {.kind = Kind::Smaller, .world_size = value.integer};
  } else {
    return errors.add(
        value, fmt::format("Expected true, false, a world size from 2 or \"default\", found {}.", describe(value)));
  }
  return true;
}

/// An entry of `units` as it is written.
struct UnitsEntry {
  std::vector<std::string> modules;
  std::int64_t per_unit = 0;
  Unit unit;
};

constexpr IntegerRange kPerUnit{1, kMostNamesOfARange};

void units_fields(Fields& fields, UnitsEntry& entry) {
  const bool has_modules =
      fields.required("modules", "The modules of the unit, or of the row.", entry.modules, Names{});
  fields.optional_as(
      "modules_per_unit",
      "Cuts the modules into units of so many neighbors; the last one may have fewer. Without it they "
      "are one unit.",
      fields.object() == nullptr ? schema_of(entry.per_unit, kPerUnit) : "",
      [&](const JsonValue& value, JsonErrors& errors) { return read_json(value, entry.per_unit, errors, kPerUnit); });
  fields.optional_as("reshard_after_forward", "reshard_after_forward of fully_shard.", kReshardSchema,
                     [&](const JsonValue& value, JsonErrors& errors) {
                       return read_reshard(value, entry.unit.reshard_after_forward, errors);
                     });
  if (has_modules && entry.modules.empty()) {
    fields.object()->fail("modules", "The list is empty.", "Name a module; \"\" is the root.");
  }
}

/// One entry of `units`: one unit, or a row of units of `modules_per_unit` modules each.
void read_units_entry(const JsonValue& value, std::vector<Unit>& units, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  UnitsEntry entry;
  units_fields(fields, entry);
  if (!object.finish()) return;
  const std::vector<std::string>& modules = entry.modules;
  const std::size_t step = entry.per_unit == 0 ? modules.size() : static_cast<std::size_t>(entry.per_unit);
  for (std::size_t i = 0; i < modules.size(); i += step) {
    const auto begin = modules.begin() + static_cast<std::ptrdiff_t>(i);
    entry.unit.modules.assign(begin, begin + static_cast<std::ptrdiff_t>(std::min(step, modules.size() - i)));
    units.push_back(entry.unit);
  }
}

constexpr std::string_view kModeSentences[] = {
    "Everything: no checkpointing.", "Also the outputs of the ops in selective_keep.", "The inputs of the block only.",
    "The inputs of the block and of its attention: each module that the block calls is a checkpoint, too.",
    "The inputs of the block only; it runs again to its end and has a backward of its own (use_reentrant=True)."};
constexpr auto kOptimizerSentences = [] {
  std::array<std::string_view, std::size(kOptimizerRows)> sentences{};
  for (std::size_t i = 0; i < sentences.size(); ++i) sentences[i] = kOptimizerRows[i].sentence;
  return sentences;
}();
constexpr std::string_view kStepSentences[] = {"Over lists of tensors, with temporaries of their size.", "One kernel.",
                                               "Tensor by tensor."};
constexpr std::string_view kInitializationSentences[] = {"Built on the meta device, sharded, then filled.",
                                                         "Built on the CPU; one unit at a time moves to the device.",
                                                         "Built on the device: the whole model at once."};
constexpr auto kFrameworkSentences = [] {
  std::array<std::string_view, kFrameworkTraits.size()> sentences{};
  for (std::size_t f = 0; f < sentences.size(); ++f) sentences[f] = kFrameworkTraits[f].sentence;
  return sentences;
}();
constexpr auto kLossSentences = [] {
  std::array<std::string_view, std::size(kLossRows)> sentences{};
  for (std::size_t i = 0; i < sentences.size(); ++i) sentences[i] = kLossRows[i].sentence;
  return sentences;
}();
constexpr std::string_view kRmsNormSentences[] = {"Op by op in fp32, cast back, then times the weight.",
                                                  "torch.nn.RMSNorm before 2.9.", "aten::_fused_rms_norm."};
constexpr std::string_view kRotarySentences[] = {"x * cos + rotate_half(x) * sin, on [batch, heads, seq, dim].",
                                                 "The same on [batch, seq, heads, dim].", "In fp32 complex numbers."};
constexpr std::string_view kAttentionSentences[] = {"PyTorch's choice.",
                                                    "FlashAttention.",
                                                    "The memory-efficient kernel.",
                                                    "cuDNN.",
                                                    "Written out in ATen.",
                                                    "Two matrix products and a softmax in fp32.",
                                                    "flash_attn.flash_attn_func (flash_attention_2)."};

void checkpointed_fields(Fields& fields, std::string& module, CheckpointMode& mode) {
  fields.required("module", {kModuleName, R"(["model.layers.{0..27}", "lm_head", ""])"}, module);
  fields.required("mode", "The outputs that stay for backward.", mode,
                  DescribedNames{kCheckpointModeTable, kModeSentences});
}

std::string schema_of_checkpointed() {
  return fmt::format(
      R"("type": "array", "default": [], "items": {{"description": "A block, or a row of blocks.", {}}})",
      schema_of_fields([](Fields& fields) {
        std::string module;
        CheckpointMode mode = CheckpointMode::Full;
        checkpointed_fields(fields, module, mode);
      }));
}

void read_checkpointed(const JsonValue& value, Checkpointing& checkpointing, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Array, "a list", errors)) return;
  for (const JsonValue& element : value.elements) {
    ObjectReader entry(element, errors);
    Fields fields(entry);
    std::string written;
    CheckpointMode mode = CheckpointMode::Full;
    checkpointed_fields(fields, written, mode);
    entry.finish();
    const JsonValue* named = element.find("module");
    if (named == nullptr || named->type != JsonType::String) continue;
    Result<std::vector<std::string>> names = unfold_name(written, "");
    if (!names) entry.fail("module", names.error()[0].what, names.error()[0].hint);
    if (!names) continue;
    for (std::string& name : *names) checkpointing.entries.push_back({.module = std::move(name), .mode = mode});
  }
}

std::vector<std::string_view> op_names() {
  std::vector<std::string_view> names;
  for (int kind = 0; kind < kNumRuledOpKinds; ++kind) names.push_back(name_of(static_cast<OpKind>(kind)));
  return names;
}

std::string schema_of_kept_ops() {
  std::string kept;
  for (const OpKind kind : Checkpointing{}.selective_keep)
    kept += (kept.empty() ? "" : ", ") + json_quoted(name_of(kind));
  return fmt::format(R"("type": "array", "items": {{{}}}, "default": [{}])", schema_of_names(op_names()), kept);
}

void read_kept_ops(const JsonValue& value, std::vector<OpKind>& kept, JsonErrors& errors) {
  kept.clear();
  if (!expect_type(value, JsonType::Array, "a list", errors)) return;
  for (const JsonValue& element : value.elements) {
    const std::optional<std::size_t> kind = read_name(element, "op", op_names(), errors);
    if (kind) kept.push_back(static_cast<OpKind>(*kind));
  }
}

void checkpointing_fields(Fields& fields, Checkpointing& checkpointing) {
  const bool describes = fields.object() == nullptr;
  fields.optional_as(
      "modules", "Blocks that are checkpointed; others are not.", describes ? schema_of_checkpointed() : "",
      [&](const JsonValue& value, JsonErrors& errors) { read_checkpointed(value, checkpointing, errors); });
  fields.optional_as("selective_keep",
                     "Kinds of ops whose outputs selective checkpointing saves. For attention that is the result of "
                     "the fused call; attention that is written out (math, eager) is run again.",
                     describes ? schema_of_kept_ops() : "", [&](const JsonValue& value, JsonErrors& errors) {
                       read_kept_ops(value, checkpointing.selective_keep, errors);
                     });
  fields.optional("every_second_linear", "Save the outputs of every second linear only, as torchtitan does.",
                  checkpointing.every_second_linear);
  fields.optional("early_stop", "Recomputation stops at the last saved tensor: PyTorch's default.",
                  checkpointing.early_stop);
  fields.optional("offload_inputs", "Inputs of checkpointed blocks wait in pinned host memory (save_on_cpu).",
                  checkpointing.offload_inputs);
}

void muon_fields(Fields& fields, MuonOptions& muon) {
  fields.optional("nesterov", "Momentum is Nesterov's.", muon.nesterov);
  fields.optional("ns_steps", "Iterations of Newton-Schulz.", muon.ns_steps, IntegerRange{1, 99});
  fields.optional("steps_last", "It steps after the other optimizer.", muon.steps_last);
}

void optimizer_fields(Fields& fields, Optimizer& optimizer) {
  fields.optional("kind", "The optimizer's name.", optimizer.kind,
                  DescribedNames{kOptimizerKindTable, std::span(kOptimizerSentences)});
  fields.optional("implementation", "PyTorch's implementation.", optimizer.implementation,
                  DescribedNames{kOptimizerImplementationTable, kStepSentences});
  optimizer_states_field(fields, optimizer);
  fields.optional("weight_decay", "Weight decay.", optimizer.weight_decay, kNotNegative);
  fields.optional("momentum", "Momentum of SGD.", optimizer.momentum, kNotNegative);
  fields.optional("clip_grad_norm", "Largest norm of all gradients; null: they are not clipped.",
                  optimizer.clip_grad_norm, OrNull{});
  MuonOptions muon;
  bool has_muon = false;
  fields.optional_object("muon",
                         "torch.optim.Muon updates the matrices that the captured script gives to it, or the weights "
                         "of linear layers in blocks; the optimizer above updates the rest.",
                         [&](Fields& inner) {
                           has_muon = true;
                           muon_fields(inner, muon);
                         });
  if (has_muon && fields.object() != nullptr) optimizer.muon = muon;
  if (optimizer.momentum != 0 && !optimizer_row(optimizer).moments_need_momentum) {
    fields.object()->fail("momentum", fmt::format("{} has no momentum.", name_of(kOptimizerKindTable, optimizer.kind)),
                          "Leave it out, or take sgd.");
  }
}

/// The spelling of a key that the file has: `before` is read, too, until the next version.
std::string_view spelling_of(std::string_view key, std::string_view before, Fields& fields,
                             std::vector<std::string>* notes) {
  ObjectReader* object = fields.object();
  if (object == nullptr || object->optional_value(key) != nullptr || object->optional_value(before) == nullptr)
    return key;
  if (notes != nullptr) {
    notes->push_back(fmt::format("The key \"{}\" is now \"{}\"; the next version reads only that.", before, key));
  }
  return before;
}

void implementation_fields(Fields& fields, Implementations& use, std::vector<std::string>* notes) {
  fields.optional("rms_norm", "RMSNorm.", use.rms_norm, DescribedNames{kRmsNormTable, kRmsNormSentences});
  fields.optional("rotary", "Rotary embedding.", use.rotary, DescribedNames{kRotaryTable, kRotarySentences});
  fields.optional("attention", "Backend of scaled_dot_product_attention.", use.attention,
                  DescribedNames{kAttentionBackendTable, kAttentionSentences});
  fields.optional(spelling_of("loss", "cross_entropy", fields, notes), "The loss of a language model.", use.loss.kind,
                  DescribedNames{kLossTable, std::span(kLossSentences)});
  fields.optional("loss_chunks", "Parts of the tokens, in turn; 0: the library's number.", use.loss.chunks, kCounts);
  fields.optional("repeat_kv", "K and V are copied to all query heads before attention.", use.repeat_kv);
  fields.optional("upcast_logits", "The loss works on logits.float().", use.upcast_logits);
  fields.optional(
      "titan_attention",
      "One product makes q, k and v, and each attention has a rotary table (true in the flavor torchtitan-0.3).",
      use.titan_attention);
  fields.optional("automodel_decoders",
                  "Llama, Qwen2 and Qwen3 are NeMo Automodel's own classes (true in the flavor automodel).",
                  use.automodel_decoders);
  fields.optional("lora_in_one_op",
                  "Adapters are NeMo Automodel's, one function each (true in its flavors), and not PEFT's layers.",
                  use.lora_in_one_op);
  fields.optional("norm_in_float64",
                  "Gradients are clipped by one norm in fp64, which is all-reduced (true in the flavors of NeMo "
                  "Automodel).",
                  use.norm_in_float64);
  fields.optional("keep_logits", "The logits stay referenced until after the backward.", use.keep_logits);
  fields.optional(
      "float_logits",
      "The model casts its logits to fp32 and drops the others; the loss gets, and keep_logits keeps, those "
      "in fp32.",
      use.float_logits);
  fields.optional("loss_after_root",
                  "The training loop computes the loss after the root's forward (true in the flavor torchtitan); else "
                  "the model does inside its forward.",
                  use.loss_after_root);
  fields.optional("use_cache", "Keys and values are copied into a cache in training too; checkpointing turns it off.",
                  use.use_cache);
  fields.optional("padding_mask",
                  "Rows of a batch end in padding, of which the model makes a mask for PyTorch's attention.",
                  use.padding_mask);
  fields.optional("prefer_cudnn_attention", "Automatic prefers cuDNN if it can run.", use.prefer_cudnn_attention);
  fields.optional("cudnn_allow_tf32",
                  "float32 convolutions run as TF32 if the GPU has it: torch.backends.cudnn.allow_tf32.",
                  use.cudnn_allow_tf32);
  fields.optional("matmul_allow_tf32", "float32 matrix products run as TF32: torch.backends.cuda.matmul.allow_tf32.",
                  use.matmul_allow_tf32);
}

void quirk_fields(Fields& fields, Quirks& quirks) {
  fields.optional("forward_all_gather_output_kept", "In forward an all-gather output lives across the next copy-out.",
                  quirks.forward_all_gather_output_kept);
  fields.optional("last_gradient_kept_in_reduce", "The last gradient of a unit lives until its reduction returns.",
                  quirks.last_gradient_kept_in_reduce);
  fields.optional("all_reduce_output_kept",
                  "With HSDP every unit keeps its all-reduce buffer until the end of backward.",
                  quirks.all_reduce_output_kept);
  fields.optional("clip_reduces_each_norm", "clip_grad_norm_ all-reduces one element per parameter.",
                  quirks.clip_reduces_each_norm);
  fields.optional("skip_collectives_of_one", "A world of one issues no collective.", quirks.skip_collectives_of_one);
  fields.optional("cublaslt_workspace_bytes", "Workspace of cuBLASLt per handle and stream.", quirks.cublaslt_workspace,
                  kInBytes);
}

void runtime_fields(Fields& fields, Runtime& runtime, std::vector<std::string>* notes) {
  const bool describes = fields.object() == nullptr;
  const Runtime known;
  const std::string_view key = spelling_of("flavor", "flavour", fields, notes);
  fields.optional_as(
      key, "The library whose model code runs: sets the implementations that are not given.",
      describes ? schema_of_names(flavors()) + fmt::format(R"(, "default": {})", json_quoted(known.flavor)) : "",
      [&](const JsonValue& value, JsonErrors& errors) {
        std::string flavor;
        if (!read_json(value, flavor, errors)) return false;
        // The flavor sets what the implementations below do not say.
        const Result<Runtime> of_flavor = runtime_of_flavor(flavor);
        if (!of_flavor) return errors.add(value, of_flavor.error()[0].what, of_flavor.error()[0].hint);
        runtime = *of_flavor;
        return true;
      });
  fields.optional("name", "The framework.", runtime.framework, DescribedNames{kFrameworkTable, kFrameworkSentences});
  fields.optional_as(
      "version", "Release of PyTorch: sets the quirks that are not given.", describes ? schema_of_torch_versions() : "",
      [&](const JsonValue& value, JsonErrors& errors) { return read_torch_version(value, runtime, errors); });
  fields.optional("allocator_settings",
                  {"PYTORCH_ALLOC_CONF; empty: PyTorch's defaults.", R"(["expandable_segments:True"])"},
                  runtime.allocator_settings);
  fields.optional_object("implementations", "The implementations of ops.",
                         [&](Fields& inner) { implementation_fields(inner, runtime.implementations, notes); });
  fields.optional_object("quirks",
                         "Behavior of FSDP2 that differs between versions; core/plan/runtime.h has the source of each.",
                         [&](Fields& inner) { quirk_fields(inner, runtime.quirks); });
}

void precision_fields(Fields& fields, MixedPrecision& precision) {
  fields.optional("param_dtype", "The dtype of gathered parameters and of compute.", precision.param_dtype, OrNull{});
  fields.optional("reduce_dtype", "The dtype of gradient reductions.", precision.reduce_dtype, OrNull{});
  fields.optional(
      "output_dtype",
      "The dtype that outputs of the units' forwards are cast to: the activations' unless the root is the only unit.",
      precision.output_dtype, OrNull{});
  fields.optional("cast_forward_inputs", "Inputs of the units' forwards are cast to param_dtype.",
                  precision.cast_forward_inputs);
  fields.optional("autocast", "The forward and the loss run under torch.autocast in this dtype: bfloat16.",
                  precision.autocast, OrNull{});
  fields.optional("float_outputs", "Under autocast: the logits that the model returns are copied to fp32 (accelerate).",
                  precision.float_outputs);
}

void mesh_fields(Fields& fields, Mesh& mesh) {
  fields.required("replicate", "Copies of the model: the outer dimension.", mesh.dp_replicate(), kRanks);
  fields.required("shard", "Ranks that share one copy: the inner dimension.", mesh.dp_shard(), kRanks);
  fields.optional("ep", "Expert parallelism: neighbors of a shard group that share the experts of each layer.", mesh.ep,
                  kRanks);
}

void read_version(const JsonValue& value, JsonErrors& errors) {
  std::string version;
  if (read_json(value, version, errors) && !is_readable_version(version, kPlanFormatVersion)) {
    errors.add(
        value, fmt::format("This program does not read plans of version \"{}\".", version),
        fmt::format("It reads up to {}; plan again, or use the program that wrote the file.", kPlanFormatVersion));
  }
}

std::string schema_of_units() {
  return R"("type": "array", "minItems": 1, "items": {"description": "One unit, or a row of units alike.", )" +
         schema_of_fields([](Fields& fields) {
           UnitsEntry entry;
           units_fields(fields, entry);
         }) +
         "}";
}

/// The model and its machines.
void layout_fields(Fields& fields, Plan& plan) {
  const bool describes = fields.object() == nullptr;
  fields.ignore("$schema", "The location of this schema, for editors.");
  fields.ignore("generator", {"The program that wrote the file.", R"(["fsdp-plan@0.1.0"])"});
  fields.required_as("format_version",
                     "Version of this format. A reader refuses another major version and newer minor ones.",
                     describes ? schema_of_names({kPlanFormatVersion}) : "", read_version);
  fields.required_object("model", "The model and its workload.", [&](Fields& inner) { model_fields(inner, plan); });
  fields.required_object("mesh", "FSDP2's device mesh. Ranks of a shard group are neighbors.",
                         [&](Fields& inner) { mesh_fields(inner, plan.mesh); });
  fields.required_as("units", "The calls of fully_shard, bottom-up, the root last.", describes ? schema_of_units() : "",
                     [&](const JsonValue& value, JsonErrors& errors) {
                       if (!expect_type(value, JsonType::Array, "a list", errors)) return;
                       for (const JsonValue& entry : value.elements) read_units_entry(entry, plan.units, errors);
                     });
}

void ddp_fields(Fields& fields, DdpOptions& ddp) {
  fields.optional("bucket_cap_mb", "MiB that close a bucket; null: 25, and 1 for the first one.", ddp.bucket_cap_mb,
                  OrNull{});
  fields.optional("gradient_as_bucket_view", "Gradients are views of their buckets.", ddp.gradient_as_bucket_view);
  fields.optional("broadcast_buffers", "Rank 0 sends its buffers before each forward.", ddp.broadcast_buffers);
  fields.optional("find_unused_parameters",
                  "DDP looks for parameters without a gradient in each step; needed if there are any.",
                  ddp.find_unused_parameters);
}

constexpr std::string_view kBackwardPrefetchSentences[] = {
    "Before the backward of the unit before it.", "After that backward, before its reduction.", "When it is needed."};

void fsdp1_fields(Fields& fields, Fsdp1Options& fsdp1) {
  fields.optional("backward_prefetch", "The time at which backward gathers the next unit.", fsdp1.backward_prefetch,
                  DescribedNames{kBackwardPrefetchTable, kBackwardPrefetchSentences});
  fields.optional("forward_prefetch", "Forward gathers the next unit before the one before it runs.",
                  fsdp1.forward_prefetch);
  fields.optional("limit_all_gathers", "The CPU waits for the unit before the last one to be freed.",
                  fsdp1.limit_all_gathers);
  fields.optional("use_orig_params", "The optimizer gets the original parameters, not the flat ones.",
                  fsdp1.use_orig_params);
  fields.optional("buffer_dtype", "Its MixedPrecision casts buffers to it; null: they stay as they are.",
                  fsdp1.buffer_dtype, OrNull{});
  fields.optional("cast_root_forward_inputs",
                  "Its MixedPrecision: the root casts its inputs, whatever cast_forward_inputs sets for units.",
                  fsdp1.cast_root_forward_inputs);
}

/// How it trains.
void training_fields(Fields& fields, Plan& plan, std::vector<std::string>* notes) {
  fields.optional("parameter_dtype",
                  "The dtype of the sharded parameters; null: as in the spec. float32 means master weights.",
                  plan.parameter_dtype, OrNull{});
  fields.optional_object("mixed_precision",
                         "torch.distributed.fsdp.MixedPrecisionPolicy. null: the parameters' own dtype.",
                         [&](Fields& inner) { precision_fields(inner, plan.mixed_precision); });
  fields.optional_object("activation_checkpointing", "torch.utils.checkpoint, non-reentrant, of repeated blocks.",
                         [&](Fields& inner) { checkpointing_fields(inner, plan.checkpointing); });
  fields.optional("cpu_offload",
                  "CPUOffloadPolicy(pin_memory=True): shards, gradients and optimizer on the host. For ZeRO: "
                  "offload_optimizer to cpu, with DeepSpeedCPUAdam instead of Adam and AdamW.",
                  plan.cpu_offload);
  fields.optional("forward_prefetch", "Units gathered ahead explicitly in forward; 0: FSDP2's implicit order.",
                  plan.forward_prefetch, kCounts);
  fields.optional("backward_prefetch", "Units gathered ahead in backward; 1: FSDP2's default.", plan.backward_prefetch,
                  kCounts);
  fields.optional("reduce_scatter_buffers",
                  "Inputs of reductions that live at once (set_reduce_scatter_max_input_buffers, PyTorch 2.13).",
                  plan.reduce_scatter_buffers, IntegerRange{1, std::int64_t{1} << 31});
  fields.optional("separate_reduce_scatter_group",
                  "Reductions use their own communicator (set_separate_reduce_scatter_group, PyTorch 2.13).",
                  plan.separate_reduce_scatter_group);
  fields.optional(
      "cuda_graphs",
      "Forward and backward are captured in a CUDA graph in the second step and replayed, as torchtitan 0.3 does.",
      plan.cuda_graphs);
  fields.optional("accumulation", "Micro-batches per optimizer step.", plan.accumulation,
                  IntegerRange{1, kMostMicroBatches});
  fields.optional("sync_every_micro_batch",
                  "False: gradients are reduced in the last micro-batch only (set_requires_gradient_sync).",
                  plan.sync_every_micro_batch);
  fields.optional_object(
      "optimizer", "The optimizer.", [&](Fields& inner) { optimizer_fields(inner, plan.optimizer); }, JsonLayout::Lines,
      kOnlySgdHasMomentum);
  const std::string_view initialization = spelling_of("initialization", "initialisation", fields, notes);
  fields.optional(initialization, "The way the sharded parameters are initialized.", plan.initialization,
                  DescribedNames{kInitializationTable, kInitializationSentences});
  fields.optional_object("runtime", "The framework whose behavior is predicted.",
                         [&](Fields& inner) { runtime_fields(inner, plan.runtime, notes); });
  fields.optional_object("ddp", "Arguments of DistributedDataParallel, for that runtime alone.",
                         [&](Fields& inner) { ddp_fields(inner, plan.ddp); });
  fields.optional_object("fsdp1", "Arguments of FullyShardedDataParallel, for that runtime alone.",
                         [&](Fields& inner) { fsdp1_fields(inner, plan.fsdp1); });
  plan.zero = default_zero_options(plan.runtime.framework);
  fields.optional_object("zero", "DeepSpeed's zero_optimization, for its runtimes alone.",
                         [&](Fields& inner) { zero_fields(inner, plan.zero); });
}

}  // namespace

bool is_readable_version(std::string_view version, std::string_view ours) {
  const auto parse = [](std::string_view text, int& major, int& minor) {
    const char* end = text.data() + text.size();
    const auto [dot, bad_major] = std::from_chars(text.data(), end, major);
    if (bad_major != std::errc{} || dot == end || *dot != '.') return false;
    const auto [rest, bad_minor] = std::from_chars(dot + 1, end, minor);
    return bad_minor == std::errc{} && rest == end && major >= 0 && minor >= 0;
  };
  int major = 0, minor = 0, our_major = 0, our_minor = 0;
  return parse(version, major, minor) && parse(ours, our_major, our_minor) && major == our_major && minor <= our_minor;
}

void read_plan_members(ObjectReader& object, Plan& plan, std::vector<std::string>* notes) {
  Fields fields(object);
  layout_fields(fields, plan);
  training_fields(fields, plan, notes);
}

std::string plan_schema() {
  const std::string schema = schema_of_fields([](Fields& fields) {
    Plan plan;
    layout_fields(fields, plan);
    training_fields(fields, plan, nullptr);
    fields.optional_as("cluster", "The machines that the plan was made for, with every figure.",
                       R"("$ref": "cluster.schema.json#/definitions/cluster")", [](const JsonValue&, JsonErrors&) {});
  });
  return schema_of_file("plan", "Plans of fsdp-plan",
                        "The training of a model on a cluster, as `fsdp-plan MODEL -o FILE` writes it and `fsdp-plan "
                        "simulate FILE` reads it. Missing keys mean the defaults.",
                        schema, {});
}

}  // namespace fsdp
