#pragma once

// A model spec: a model in symbols, written by people. With a workload it becomes a Model.
//
//   {
//     "format_version": "1.0",
//     "name": "Llama-3.2-1B",
//     "source": "https://huggingface.co/meta-llama/Llama-3.2-1B/blob/main/config.json",
//     "dtype": "bfloat16",
//     "dimensions": {"batch": 1, "seq": 4096},
//     "inputs": {"input_ids": {"shape": ["batch", "seq"], "dtype": "int64"}, ...},
//     "modules": [
//       {"name": "model.embed_tokens", "block": "token_embedding", "vocab_size": 128256, "hidden_size": 2048},
//       {"name": "model.layers.{0..15}", "block": "decoder_layer", "style": "llama", ...},
//       ...
//     ],
//     "tied": {"lm_head.weight": "model.embed_tokens.weight"}
//   }
//
// `modules` are in forward order. Each is one call of a block: the block finds its inputs by name among `inputs` and
// the outputs of earlier calls. model_specs/schemas/model.schema.json describes every key.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/op.h"
#include "core/plan/plan.h"
#include "core/spec/initial_values.h"

namespace fsdp {

/// A number, or an expression over dimensions such as "ceil(12.5 * seconds)", as written.
struct SpecNumber {
  std::string text;
  std::string where;  ///< "file:line:column: /pointer".

  bool operator==(const SpecNumber&) const = default;
};

/// One option of a block or attribute of an op.
struct SpecOption {
  std::string name;
  /// A flag, a text, a number or expression, or a list of numbers.
  std::variant<bool, std::string, SpecNumber, std::vector<SpecNumber>> value;
  std::string where;

  bool operator==(const SpecOption&) const = default;
};

struct SpecDimension {
  std::string name;
  SpecNumber value;  ///< Its default; may use other dimensions.

  bool operator==(const SpecDimension&) const = default;
};

struct SpecInput {
  std::string name;
  std::vector<SpecNumber> shape;
  std::optional<Dtype> dtype;  ///< Defaults to the precision of the activations.
  bool root_argument = true;   ///< False if a script passes it to an inner module, not to the root's forward.
  std::string where;

  bool operator==(const SpecInput&) const = default;
};

/// A plain op of a module without a block.
struct SpecOp {
  OpKind kind = OpKind::Add;
  std::string module;  ///< Relative to the entry; "" is the entry's own module.
  std::string class_name;
  std::vector<std::string> inputs;   ///< Defaults to the outputs of the previous op.
  std::vector<std::string> outputs;  ///< Names for its outputs; may be empty.
  /// Variables of a forward that refer to its outputs, in order; "" for none. "q" is a variable of the entry's own
  /// forward, "attn.q" one of its module attn's.
  std::vector<std::string> variables;
  std::vector<SpecOption> attributes;
  std::string where;

  bool operator==(const SpecOp&) const = default;
};

/// The name of a value inside a block and its name in the model.
struct SpecRename {
  std::string inside;
  std::string outside;

  bool operator==(const SpecRename&) const = default;
};

/// An option that cycles through values over the repetitions: Gemma-2's sliding windows.
struct SpecVariation {
  std::string name;
  std::vector<SpecOption> values;

  bool operator==(const SpecVariation&) const = default;
};

/// One entry of `modules`: a call, or a row of equal calls.
struct SpecModule {
  std::string name;       ///< Without the repetition: "model.layers"; "" is the root.
  bool repeated = false;  ///< Written as "model.layers.{first..last}".
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::string class_name;  ///< Defaults to the block's.
  std::string block;       ///< Kind of the block; empty if the entry has `ops`.
  std::vector<SpecOption> options;
  std::vector<SpecOp> ops;
  std::vector<SpecRename> inputs;
  std::vector<SpecRename> outputs;
  std::vector<SpecVariation> variations;
  std::vector<std::string> recipes;  ///< Only in these recipes; empty for all.
  bool keep_outputs = false;         ///< Its outputs live until the forward of the root returns.
  bool called = true;                ///< False if it is registered, but its forward never runs.
  bool after_root = false;           ///< Runs after the root's forward: the loss of a training loop.
  std::string where;

  bool operator==(const SpecModule&) const = default;
};

/// A name pattern and its place in the file.
struct SpecPattern {
  std::string text;
  std::string where;

  bool operator==(const SpecPattern&) const = default;
};

/// A way to train the model: defaults that the command line may override.
struct Recipe {
  std::string name;
  std::string description;
  std::optional<Dtype> parameter_dtype;  ///< Dtype of the trained parameters. Defaults to the checkpoint's.
  MixedPrecision mixed_precision;
  Optimizer optimizer;
  std::int64_t accumulation = 1;
  Initialization initialization = Initialization::Meta;  ///< For a captured script: its own way to make the model,
  bool cudnn_allow_tf32 = true;                          ///< and whether it lets cuDNN run float32 as TF32.
  bool matmul_allow_tf32 = false;
  std::vector<SpecDimension> dimensions;
  std::vector<SpecPattern> trainable;
  std::vector<SpecPattern> frozen;
  std::vector<std::string> notes;

  bool operator==(const Recipe&) const = default;
};

struct SpecTie {
  std::string alias;  ///< "lm_head.weight"
  std::string kept;   ///< "model.embed_tokens.weight"
  std::string where;

  bool operator==(const SpecTie&) const = default;
};

struct SpecClass {
  std::string module;
  std::string class_name;
  bool called = true;
  std::string where;

  bool operator==(const SpecClass&) const = default;
};

struct CapturedModel;

struct ModelSpec {
  std::string file_name;
  std::string name;
  std::string description;
  std::string source;
  Dtype dtype = Dtype::BFloat16;  ///< Dtype of the checkpoint.
  std::vector<SpecDimension> dimensions;
  std::vector<SpecInput> inputs;
  std::vector<SpecClass> classes;  ///< Classes of modules that hold the entries: "model" is a "Qwen3Model".
  std::vector<SpecModule> modules;
  std::vector<SpecPattern> registration;  ///< Modules in the order of registration, if it differs from forward order.
  std::vector<SpecTie> tied;
  SpecInitialValues initial_values;
  std::string loss = "loss";
  std::optional<SpecNumber> tokens_per_step;  ///< Defaults to batch * seq, or batch without a seq.
  std::vector<SpecPattern> trainable;
  std::vector<SpecPattern> frozen;
  std::vector<Recipe> recipes;  ///< The first is the default. Never empty after reading.
  std::vector<std::string> notes;
  /// For a captured model (core/spec/captured_model.h), in place of inputs, classes and modules; null for a spec.
  std::shared_ptr<const CapturedModel> captured;

  bool operator==(const ModelSpec&) const = default;
};

/// Another model beside the trained one, with its spec. A null spec is left out of the model.
struct OtherSpec {
  OtherModel options;
  std::shared_ptr<const ModelSpec> spec;
};

/// The user's sizes for a spec.
struct Workload {
  std::string recipe = {};                  ///< Defaults to the first one.
  std::vector<Dimension> dimensions = {};   ///< Override the spec's and the recipe's, by name.
  std::vector<std::string> trainable = {};  ///< Patterns; if given, everything else is frozen.
  std::vector<std::string> frozen = {};     ///< Patterns; freezes all matches, whatever else applies.
  std::optional<LoraOptions> lora = {};  ///< Adapters on linear layers; everything else is frozen before the patterns.
  std::optional<Packing> packing = {};   ///< A micro-batch is one row of several documents.
  bool titan_attention = false;          ///< `Implementations::titan_attention`.
  bool automodel_decoders = false;       ///< `Implementations::automodel_decoders`.
  bool lora_in_one_op = false;           ///< `Implementations::lora_in_one_op`.
  bool attends_without_masks = false;    ///< The kernel takes a window as an argument (AttentionBackend::FlashAttn).
  bool padding_mask = false;             ///< `Implementations::padding_mask`, if the model's blocks can make one.
  std::optional<Quantization> quantization = {};  ///< The frozen base is stored so. REQUIRES: adapters.
  std::optional<LigerKernels> liger = {};         ///< Parts of the model are kernels of Liger.
  std::optional<Float8Training> float8 = {};      ///< Linear layers multiply in 8-bit floats.
  bool loss_after_root = false;  ///< `Implementations::loss_after_root`, if the last entry is the loss alone, and
  bool float_logits = false;     ///< `Implementations::float_logits`, if there is such an entry.
  /// `LossRow::takes_head`: the head and the loss become one op, if the model ends with a head and such an entry.
  bool loss_takes_head = false;
  bool loss_calls_head = false;      ///< `LossRow::calls_head`: that op runs after the root's forward.
  std::vector<OtherSpec> also = {};  ///< Models beside this one, built for the same batch.
};

/// Whether the model's blocks make a mask of padding (`Workload::padding_mask`). Others are built without.
bool makes_padding_mask(const ModelSpec& spec);

/// The workload of a plan.
Workload workload_of(const Plan& plan);

/// Copies the settings of a plan's runtime that concern the model itself.
void apply_implementations(const Implementations& use, Workload& workload);

/// Reads a spec, or a captured model, from a file ("-" is the standard input). Error: all its faults.
Result<ModelSpec> read_model_spec(const std::string& path);
Result<ModelSpec> read_model_spec(const JsonDocument& document);
Result<ModelSpec> parse_model_spec(std::string text, std::string file_name);

/// The recipe with this name; the first one for an empty name. Error: unknown, with the nearest name.
Result<Recipe> find_recipe(const ModelSpec& spec, std::string_view name);

/// The model of a spec for a workload. Error: all faults: unknown names in the workload, sizes that are not positive
/// integers, shapes that do not match, patterns that match nothing, cyclic ties.
Result<Model> build_model(const ModelSpec& spec, const Workload& workload = {});

}  // namespace fsdp
