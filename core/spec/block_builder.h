#pragma once

// Writes a block op by op, as the code of its PyTorch module does:
//
//   BlockBuilder b("decoder_layer", "LlamaDecoderLayer", available);
//   const BlockValue hidden = b.input("hidden");
//   const BlockValue normed = b.rms_norm("input_layernorm", hidden, "LlamaRMSNorm");
//   {
//     const auto scope = b.enter("self_attn", "LlamaAttention");  // names below are relative to self_attn
//     const BlockValue q = b.linear("q_proj", normed, heads * head_dim);
//     ...
//   }
//   b.output("hidden", b.add(hidden, mlp));
//   FSDP_TRY(auto block, b.finish());
//
// Every layer call makes the module and its parameters on first use; a second use of the same module shares them.
// Parameters are in the order in which their modules were made. If PyTorch registers modules in another order than it
// calls them, `declare` them first. `finish` reports all mistakes (shapes that do not fit, a missing input); until then
// the builder continues with what it has.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/op.h"
#include "core/model/op_shapes.h"
#include "core/plan/float8.h"
#include "core/plan/liger_kernels.h"
#include "core/plan/lora.h"
#include "core/plan/packing.h"
#include "core/plan/quantization.h"

namespace fsdp {

/// A value of an unfinished block. Valid only for the BlockBuilder that made it.
struct BlockValue {
  int id = -1;
};

/// A parameter of a block, by its name below the calling module.
struct BlockParameter {
  std::string name;    ///< "self_attn.q_proj.weight".
  int module = 0;      ///< In `Block::modules`: the module that registers it.
  bool fixed = false;  ///< Registered with requires_grad = False, like fixed sinusoids; no pattern unfreezes it.
  std::optional<Dtype> dtype = {};  ///< Defaults to the model's.
  std::int64_t stands_for = 0;      ///< As Parameter::stands_for.
  bool gathered_in_float8 = false;  ///< As Parameter::gathered_in_float8.

  bool operator==(const BlockParameter&) const = default;
};

/// A finished block with the names that bind a call.
struct BlockDefinition {
  Block block;
  std::vector<BlockParameter> parameters;  ///< One per `block.parameters`.
  std::vector<Buffer> buffers;             ///< By their names below the calling module.
  std::vector<std::string> input_names;    ///< One per block input: the name of its value.
  std::vector<std::string> output_names;   ///< One per block output.
  std::vector<std::pair<int, int>> named;  ///< In `block.outputs` and `block.modules`: as `Model::named`.
  std::vector<std::string> absent_inputs;  ///< Optional inputs that were requested but missing.

  bool operator==(const BlockDefinition&) const = default;
};

/// A part of a block that one of Liger's kernels could replace.
struct LigerPart {
  std::string family;  ///< The first word of its class.
  LigerKernel kernel = LigerKernel::Rope;
  LigerPatch patch = LigerPatch::None;  ///< What the library does with it.
  bool is_known = false;                ///< The family has a row.

  bool operator==(const LigerPart&) const = default;
};

struct LinearOptions {
  bool bias = false;
  bool transposed_weight = false;  ///< Weight [in, out], as in GPT-2's Conv1D.
  std::string_view class_name = "Linear";
  std::string_view weight_name = "weight";
  std::string_view bias_name = "bias";
  bool is_output_head = false;  ///< Its results are logits over the vocabulary: no target of PEFT's all-linear.
};

struct EmbeddingOptions {
  std::string_view class_name = "Embedding";
  bool fixed = false;             ///< As BlockParameter::fixed.
  std::int64_t padding_idx = -1;  ///< A row without a gradient; -1 if none.
};

struct NormOptions {
  bool affine = true;                ///< With a weight.
  bool bias = true;                  ///< LayerNorm, GroupNorm and BatchNorm: with a bias too.
  bool brief = false;                ///< RMSNorm: its numbers in fp32 live until they are cast (Llama 4).
  bool unit_offset = false;          ///< RMSNorm, LayerNorm: multiplies by 1 + weight (Gemma, Nemotron).
  bool wide_weight = false;          ///< RMSNorm: multiplies by the weight in fp32, and casts last (OLMo 2). LayerNorm:
                                     ///< the same, written out and without a bias (Cohere).
  std::string_view class_name = {};  ///< Defaults to PyTorch's own ("LayerNorm").
  double eps = 0;                    ///< 0 means 1e-6 for RMSNorm, 1e-5 for the others.
  double momentum = 0.1;             ///< For BatchNorm's running statistics.
};

struct ConvOptions {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  std::string_view class_name = {};  ///< Defaults to PyTorch's own ("Conv1d").
};

struct AttentionOptions {
  bool causal = true;
  std::int64_t window = 0;
  double softcap = 0;
  double dropout = 0;
  BlockValue bias = {};  ///< Additive bias or mask [batch or 1, heads or 1, seq, key_seq]. Optional.
  double scale = 0;      ///< Factor of the scores; 0 means 1 / sqrt(head_dim).
  int sinks = -1;        ///< From `parameter_of`: a score of no key for each head [heads]. -1 if there are none.
};

/// Error::where of a mistake in the sizes, which may come from a workload.
inline constexpr std::string_view kInSizes = "sizes";

class BlockBuilder {
 public:
  /// `available`: the values of the model that the block may take as inputs, by name.
  BlockBuilder(std::string kind, std::string class_name, std::vector<Value> available = {});

  /// From here on, rows of the batch end in padding, or do not.
  void pad_rows(bool are_padded) { pads_rows_ = are_padded; }
  bool pads_rows() const { return pads_rows_; }
  /// From here on, attention takes its window as an argument, and no mask of it.
  void attend_without_masks(bool does) { attends_without_masks_ = does; }
  bool attends_without_masks() const { return attends_without_masks_; }
  /// From here on, adds PEFT's adapters to the linear layers that they target. `block_name` is the name of the calling
  /// module. REQUIRES: the options outlive the builder.
  void adapt(const LoraOptions& lora, std::string block_name);
  /// From here on, causal attention over the whole row attends to the documents of a packed row. It takes their
  /// boundaries or their mask from the available values.
  void pack(PackedAttention attention, std::vector<std::int64_t> documents) {
    packed_ = attention;
    documents_ = std::move(documents);
  }
  bool is_packed() const { return packed_ != PackedAttention::None; }
  /// The documents of which attention takes a mask. Empty if it takes none.
  std::vector<std::int64_t> masked_documents() const {
    return packed_ == PackedAttention::Sdpa ? documents_ : std::vector<std::int64_t>{};
  }
  /// From here on, attention of Llama and Qwen3 is that of torchtitan 0.3: one product for q, k and v, and a rotary
  /// table in each.
  void attend_as_titan(bool does) { attends_as_titan_ = does; }
  bool attends_as_titan() const { return attends_as_titan_; }
  /// From here on, Llama, Qwen2 and Qwen3 are NeMo Automodel's own classes (`Implementations::automodel_decoders`).
  void decode_as_automodel(bool does) { decodes_as_automodel_ = does; }
  /// Whether this family, "Llama", is one of them.
  bool decodes_as_automodel(std::string_view family) const;
  /// From here on, adapters are NeMo Automodel's (`Implementations::lora_in_one_op`).
  void adapt_in_one_op(bool does) { adapts_in_one_op_ = does; }
  /// From here on, packs the weights of linear layers in four bits, except for the head's. `base` is the dtype of the
  /// weights before. REQUIRES: the quantization outlives the builder.
  void quantize(const Quantization& quantization, Dtype base);
  bool is_quantized() const { return quantization_ != nullptr; }
  /// From here on, replaces parts by Liger's kernels. REQUIRES: the kernels outlive the builder.
  void use_liger(const LigerKernels& kernels) { liger_ = &kernels; }
  /// From here on, linear layers that the options choose are torchao's Float8Linear. `bases`: the names of the modules
  /// that repeat the block. REQUIRES: the options outlive the builder.
  void use_float8(const Float8Training& float8, std::vector<std::string> bases);
  /// [num parts of names in `Float8Training::skip`] Whether a linear layer of this block has it in its name.
  const std::vector<bool>& found_skipped() const { return found_skipped_; }
  /// The number of converted layers.
  int num_converted() const { return num_converted_; }
  /// What Liger does with such a part of a family, None if that kernel is not asked for or not predicted. Notes it.
  LigerPatch patch_of(LigerKernel kernel, std::string_view family, std::string_view module = {});
  /// The same with GLU: whether `liger_glu` replaces the activation and the product after it.
  bool has_liger_glu(std::string_view family);
  const std::vector<LigerPart>& liger_parts() const { return liger_parts_; }
  /// Whether adapters target a layer of this name, relative to the scope. Notes its targets as found.
  bool is_adapted(std::string_view module, bool is_output_head = false);
  /// Fails if they name this layer, which PEFT would adapt in another way than a linear one.
  void refuse_adapters(std::string_view module, std::string_view layer);
  /// Whether the layer is trained whole, as a copy beside the frozen original. Notes it as found.
  bool is_saved(std::string_view module);
  /// [num modules_to_save] Those that this block has. Empty without adapters.
  const std::vector<bool>& found_saved() const { return found_saved_; }
  /// [num targets] Those that a layer of this block has. Empty without adapters.
  const std::vector<bool>& found_targets() const { return found_targets_; }
  /// The names that adapters could target, relative to the block.
  const std::vector<std::string>& linear_names() const { return linear_names_; }

  // ---- Modules. Names are relative to the open scope; "" is the scope's own module.

  /// The destructor leaves the scope.
  class [[nodiscard]] Scope {
   public:
    Scope(BlockBuilder& builder, int previous) : builder_(builder), previous_(previous) {}
    ~Scope() { builder_.leave(previous_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    BlockBuilder& builder_;
    int previous_;
  };
  /// Makes (or finds) a module. The following ops run in its forward.
  Scope enter(std::string_view name, std::string_view class_name);
  /// Registers a module that is called later, or never. A ModuleList is never `called` through its own forward.
  void declare(std::string_view name, std::string_view class_name, bool called = true);
  /// The class of a module, relative to the current one; empty if it has no class or does not exist.
  std::string class_of(std::string_view name) const {
    const int found = find_module(full_name(name));
    return found < 0 ? std::string() : definition_.block.modules[found].class_name;
  }

  // ---- Inputs and outputs.

  /// One of the available values. Error: an unknown name.
  BlockValue input(std::string_view name);
  /// The same for inputs that only some models have; `nullopt` if missing.
  std::optional<BlockValue> optional_input(std::string_view name);
  void output(std::string_view name, BlockValue value);
  /// An output in a local variable of a forward that continues after the block: that of the scope's module, or of the
  /// innermost such module around it.
  void named_output(std::string_view name, BlockValue value);

  // ---- Local variables of the published code. They keep values alive that autograd does not save; in frozen layers
  // and in the forward of checkpointed ones there are no others.

  /// Assigns the value to a variable of the scope's forward. It lives until that forward returns or the variable is
  /// reassigned.
  BlockValue local(std::string_view variable, BlockValue value);
  /// The same for an existing op: a variable of the forward of `module` (below the scope's; "" is the scope's own)
  /// refers to `value`, the output of op `from`, until op `next_value` reassigns it (-1 if none does) or that forward
  /// returns. Returns false if no op from `from` on runs in that forward.
  bool hold(std::string_view module, BlockValue value, int from, int next_value);
  int num_ops() const { return static_cast<int>(definition_.block.ops.size()); }

  const Shape& shape(BlockValue value) const;
  /// Size of one dimension; negative `dim` counts from the end.
  std::int64_t size(BlockValue value, int dim) const;

  // ---- Layers: `module` has the parameters and runs the op.

  BlockValue linear(std::string_view module, BlockValue x, std::int64_t out_features,
                    const LinearOptions& options = {});
  BlockValue embedding(std::string_view module, BlockValue ids, std::int64_t num_embeddings, std::int64_t width,
                       const EmbeddingOptions& options = {});
  BlockValue rms_norm(std::string_view module, BlockValue x, const NormOptions& options = {});
  BlockValue layer_norm(std::string_view module, BlockValue x, const NormOptions& options = {});
  BlockValue group_norm(std::string_view module, BlockValue x, std::int64_t groups, const NormOptions& options = {});
  /// With its running statistics as buffers.
  BlockValue batch_norm(std::string_view module, BlockValue x, const NormOptions& options = {});
  BlockValue conv1d(std::string_view module, BlockValue x, std::int64_t out_channels, const ConvOptions& options);
  BlockValue conv2d(std::string_view module, BlockValue x, std::int64_t out_channels, const ConvOptions& options);
  /// Records no op at probability 0, but makes the module. "" as module is a functional call.
  BlockValue dropout(std::string_view module, BlockValue x, double probability);
  /// An elementwise activation with a module of its own: silu, gelu, relu, sigmoid or tanh.
  BlockValue activation(std::string_view module, OpKind kind, BlockValue x, std::string_view class_name);

  /// A parameter of the scope's own module, as a value.
  BlockValue parameter(std::string_view name, Shape shape, bool fixed = false);
  /// A parameter that no op of this block reads.
  void unused_parameter(std::string_view name, Shape shape);
  void buffer(std::string_view name, Shape shape, Dtype dtype, bool persistent);

  // ---- Functions: run in the forward of the scope's module.

  /// cos, sin [..., head_dim].
  struct CosSin {
    BlockValue cos, sin;
  };
  struct TableOptions {
    bool wide = false;
    bool by_halves = false;
    bool complex = false;
    bool elementwise = false;
    bool from_cache = false;
    bool of_positions = false;
    bool interleaved = false;
  };
  CosSin rotary_table(BlockValue position_ids, std::int64_t head_dim, const RotaryFrequencies& frequencies,
                      TableOptions options);
  CosSin rotary_table(BlockValue position_ids, std::int64_t head_dim) {
    return rotary_table(position_ids, head_dim, {}, {});
  }
  struct KeyValue {
    BlockValue key;
    BlockValue value;
  };
  struct QueryKey {
    BlockValue query, key;
  };
  struct RotaryOptions {
    bool partial = false;
    bool interleaved = false;
    bool by_halves = false;
    bool complex = false;
    bool in_float = false;
    bool wide = false;
    std::string_view family = {};  ///< The first word of the class names, by which Liger replaces it.
  };
  QueryKey rotary(BlockValue query, BlockValue key, CosSin table, RotaryOptions options);
  QueryKey rotary(BlockValue query, BlockValue key, CosSin table) { return rotary(query, key, table, {}); }
  /// query [batch, seq, heads, dim], key, value [batch, key_seq, kv_heads, dim] -> [batch, seq, heads * dim].
  BlockValue attention(BlockValue query, BlockValue key, BlockValue value, const AttentionOptions& options);

  /// silu(gate) * up, or gelu(gate) * up by tanh.
  BlockValue liger_glu(BlockValue gate, BlockValue up, bool approximate_gelu);
  BlockValue silu(BlockValue x);
  BlockValue gelu(BlockValue x, bool approximate);
  BlockValue relu(BlockValue x);
  BlockValue sigmoid(BlockValue x);
  BlockValue tanh(BlockValue x);
  BlockValue add(BlockValue a, BlockValue b);
  BlockValue sub(BlockValue a, BlockValue b);
  BlockValue mul(BlockValue a, BlockValue b);
  BlockValue scale(BlockValue x, double factor, bool rounded = false);
  BlockValue softcap(BlockValue x, double cap);
  BlockValue cast(BlockValue x, Dtype dtype);
  /// To the dtype of trained parameters, which differs from that of the activations only under autocast.
  /// `unless_autocast`: x itself then.
  BlockValue cast_as_trained(BlockValue x, bool unless_autocast);
  BlockValue detach(BlockValue x);

  BlockValue reshape(BlockValue x, Shape shape);
  BlockValue transpose(BlockValue x, std::int64_t dim, std::int64_t other_dim);
  BlockValue slice(BlockValue x, std::int64_t dim, std::int64_t start, std::int64_t length);
  BlockValue select(BlockValue x, std::int64_t dim, std::int64_t index);
  BlockValue expand(BlockValue x, Shape shape);
  std::vector<BlockValue> split(BlockValue x, int parts, std::int64_t dim);
  /// Two parts: `length` along `dim`, and the rest.
  std::array<BlockValue, 2> split_at(BlockValue x, std::int64_t length, std::int64_t dim);
  /// Three parts: `length` along `dim`, and two halves of the rest.
  std::array<BlockValue, 3> split_three(BlockValue x, std::int64_t length, std::int64_t dim);
  /// Parts of these lengths.
  std::vector<BlockValue> split_by(BlockValue x, const std::vector<std::int64_t>& lengths, std::int64_t dim);
  BlockValue contiguous(BlockValue x);
  BlockValue cat(const std::vector<BlockValue>& parts, std::int64_t dim);
  BlockValue stack(const std::vector<BlockValue>& parts, std::int64_t dim);
  KeyValue kv_cache(BlockValue key, BlockValue value);
  BlockValue set_slice(BlockValue x, BlockValue part, std::int64_t dim, std::int64_t start);
  BlockValue index(BlockValue x, BlockValue indices, std::int64_t dim);
  BlockValue pad(BlockValue x, std::int64_t dim, std::int64_t length, bool reflect = false);

  BlockValue softmax(BlockValue x, std::int64_t dim);
  BlockValue mean(BlockValue x, std::int64_t dim, bool keep_dim);
  BlockValue sum(BlockValue x, std::int64_t dim, bool keep_dim);
  BlockValue cross_entropy(BlockValue logits, BlockValue labels, bool shift);
  BlockValue constant(Shape shape, double value = 0, std::optional<Dtype> dtype = {});
  /// 0, 1, 2, ... along the last dimension.
  BlockValue positions(Shape shape, Dtype dtype = Dtype::Int64);
  /// Any other fill. Reads the members of `fill` that ConstantFill names.
  BlockValue filled(Shape shape, std::optional<Dtype> dtype, OpAttributes fill);

  /// Any other op. The functions above use this.
  struct OpRequest {
    OpKind kind = OpKind::Add;
    std::string_view module = {};  ///< Relative; must exist. "" is the scope's own.
    std::vector<BlockValue> inputs = {};
    std::vector<int> parameters = {};  ///< From `parameter_of`.
    OpAttributes attributes = {};
    Shape requested = {};  ///< As in OpShapes.
    int num_outputs = 1;
    std::vector<std::string> names = {};  ///< Names of the outputs. Defaults to names made from the module or the kind.
  };
  std::vector<BlockValue> op(const OpRequest& request);
  /// Registers a parameter of a module on first use; the same name returns the same parameter.
  int parameter_of(std::string_view module, std::string_view name, const Shape& shape, bool fixed = false);

  /// Adds a mistake in the block's options that no shape rule can find.
  void fail(std::string what, std::string hint = {});
  /// The same for a size that the options allow but that does not match the workload's sizes.
  void fail_by_size(std::string what, std::string hint);

  /// The block, or all its mistakes. The builder is unusable afterwards.
  Result<BlockDefinition> finish();

 private:
  void leave(int previous);
  void end_locals();
  std::string full_name(std::string_view name) const;
  int find_module(std::string_view full_name) const;
  int add_module(std::string name, std::string_view class_name, int parent, bool called);
  int make_module(std::string_view name, std::string_view class_name, bool called);
  BlockValue add_value(std::string name, Shape shape, std::optional<Dtype> dtype, bool broken = false);
  Result<std::vector<Shape>> output_shapes(const OpRequest& request) const;
  bool is_broken(const OpRequest& request) const;
  BlockValue plain_linear(std::string_view module, BlockValue x, std::int64_t out_features,
                          const LinearOptions& options);
  bool is_packed(const LinearOptions& options) const;
  bool multiplies_in_float8(std::string_view module, std::int64_t in, std::int64_t out, const LinearOptions& options);
  BlockValue packed_linear(std::string_view module, BlockValue x, std::int64_t out_features,
                           const LinearOptions& options, bool cloned);
  /// The linear layer of the model itself, packed if the base is quantized.
  BlockValue base_linear(std::string_view module, BlockValue x, std::int64_t out_features,
                         const LinearOptions& options);
  BlockValue linear_in_one_op(std::string_view module, BlockValue x, std::int64_t out_features,
                              const LinearOptions& options);
  BlockValue adapted_linear(std::string_view module, BlockValue x, std::int64_t out_features,
                            const LinearOptions& options);
  BlockValue plain_embedding(std::string_view module, BlockValue ids, std::int64_t num_embeddings, std::int64_t width,
                             const EmbeddingOptions& options);
  std::string adapted_name(std::string_view module) const;
  /// What attention takes to keep the documents of a packed row apart. Empty if it cannot.
  std::vector<BlockValue> documents_for(const AttentionOptions& options, BlockValue query, BlockValue key,
                                        BlockValue value);
  /// The two parts of the scope's module.
  void declare_saved(std::string_view class_name);
  LigerPatch patch_of_norm_class(std::string_view class_name, std::string_view module);
  BlockValue unary(OpKind kind, BlockValue x, const OpAttributes& attributes = {});
  BlockValue binary(OpKind kind, BlockValue a, BlockValue b);
  BlockValue norm(OpKind kind, std::string_view module, BlockValue x, std::int64_t width, const NormOptions& options,
                  OpAttributes attributes, std::string_view default_class);
  BlockValue conv(OpKind kind, std::string_view module, BlockValue x, std::int64_t out_channels,
                  const ConvOptions& options, std::string_view default_class);

  BlockDefinition definition_;
  std::vector<Value> available_;
  std::vector<int> inputs_;          // Value ids, in the order of the requests.
  std::vector<bool> broken_values_;  // So that consequences of a reported mistake are not reported again.
  std::vector<bool> broken_parameters_;
  Errors errors_;
  std::map<std::string, int, std::less<>> module_ids_;
  std::map<std::string, int, std::less<>> parameter_ids_;
  std::map<std::pair<int, std::string>, int> locals_;  // By module and variable: its current value.
  int current_ = 0;
  bool pads_rows_ = false;
  bool attends_without_masks_ = false;
  const LoraOptions* lora_ = nullptr;
  PackedAttention packed_ = PackedAttention::None;
  bool attends_as_titan_ = false;
  bool decodes_as_automodel_ = false;
  bool adapts_in_one_op_ = false;
  std::vector<std::int64_t> documents_;
  std::string block_name_;
  std::vector<bool> found_targets_;
  std::vector<bool> found_saved_;
  std::vector<std::string> linear_names_;
  const LigerKernels* liger_ = nullptr;
  const Float8Training* float8_ = nullptr;
  std::vector<std::string> float8_bases_;
  std::vector<bool> found_skipped_;
  int num_converted_ = 0;
  std::vector<LigerPart> liger_parts_;
  const Quantization* quantization_ = nullptr;
  Dtype unpacked_ = Dtype::Float32;  // The dtype of quantized weights before.
};

}  // namespace fsdp
