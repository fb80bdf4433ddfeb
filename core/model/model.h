#pragma once

// The model: the computation of one training step, on tensors of known sizes.
//
// A model is a tree of modules and a list of calls in forward order. A call runs one block: a list of ops on the
// block's own values and parameters, written once and shared by all modules that repeat it (the 28 decoder layers of a
// model are 28 calls of one block). Sizes are concrete: a spec has shapes in symbols such as `batch` and `seq`, and
// becomes a model when a workload gives the symbols values (core/spec/model_spec.h).
//
//   modules     model                  parameters  model.layers.0.self_attn.q_proj.weight [2048, 2048]
//               model.layers.0         values      hidden [2, 512, 2048]
//   calls       model.embed_tokens: input_ids -> hidden
//               model.layers.0:     hidden, cos, sin -> hidden      (block 1)
//               model.layers.1:     hidden, cos, sin -> hidden      (block 1)
//               lm_head and loss:   hidden, labels -> loss

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/units.h"
#include "core/model/initial_values.h"
#include "core/model/op.h"
#include "core/model/recorded_block.h"

namespace fsdp {

using Shape = std::vector<std::int64_t>;

std::int64_t num_elements(const Shape& shape);

/// A tensor between ops. Without `dtype` it has the precision of the activations, which the plan decides (param_dtype,
/// or the dtype of the parameters without mixed precision).
struct Value {
  std::string name = {};
  Shape shape = {};
  std::optional<Dtype> dtype = {};
  /// The script of a captured model requests its gradient (`requires_grad_()`), whatever its inputs are.
  bool requires_grad = false;

  bool operator==(const Value&) const = default;
};

struct Module {
  std::string name;        ///< Fully qualified; "" is the root.
  std::string class_name;  ///< As in Python: "Qwen3DecoderLayer".
  int parent = -1;         ///< Index in `Model::modules`; -1 for the root.
  std::vector<int> children;
  std::vector<int> parameters;  ///< Registered on this module itself, in order of registration.
  bool called = true;  ///< Entered through its own forward; false for containers (ModuleList) and for modules whose
                       ///< parts are called one by one. Only a called module can be an FSDP unit of its own.

  bool operator==(const Module&) const = default;
};

struct Parameter {
  std::string name;  ///< Fully qualified.
  Shape shape;
  Dtype dtype = Dtype::Float32;         ///< As stored in the checkpoint; a plan may train it in another dtype.
  bool trainable = true;                ///< requires_grad, as the spec states it.
  bool receives_gradient = true;        ///< Derived: trainable, and on a path to the loss that no detach cuts.
  int module = 0;                       ///< In `Model::modules`.
  std::vector<std::string> tied_names;  ///< Other names of the same parameter ("lm_head.weight").
  InitialValues initial = {};           ///< Its elements at the start if nothing is loaded.
  bool is_muon = false;                 ///< A matrix that torch.optim.Muon trains if the plan has it: in a capture, the
                                        ///< script's choice; else the weight of a linear layer in a block.
  std::int64_t stands_for = 0;          ///< Numbers of the weight that it packs as four bits each; 0 if it packs none.

  bool gathered_in_float8 = false;  ///< The weight of a float8 layer that FSDP2 gathers in 8 bits.

  bool operator==(const Parameter&) const = default;
};

struct Buffer {
  std::string name;
  Shape shape;
  Dtype dtype = Dtype::Float32;
  bool persistent = true;
  /// Whether PyTorch knows it as a buffer. Other tensors of a module, such as the scales of 4-bit weights, are on each
  /// GPU as well, but broadcasts skip them.
  bool registered = true;
  /// In `Model::parameters`: its original, for example in a captured script's average of weights. Each GPU copies its
  /// own part of that parameter. -1 if each GPU has the buffer whole.
  int copy_of = -1;

  bool operator==(const Buffer&) const = default;
};

/// A module inside a block, relative to the module that calls the block.
struct BlockModule {
  std::string name;  ///< Relative: "" is the caller itself, "self_attn.q_proj" a part of it.
  std::string class_name;
  int parent = -1;     ///< In `Block::modules`.
  bool called = true;  ///< As `Module::called`.

  bool operator==(const BlockModule&) const = default;
};

/// A local variable of a module's forward. It keeps its value alive even if nothing uses it any more.
struct LocalVariable {
  int value = 0;   ///< In `Block::values`.
  int module = 0;  ///< In `Block::modules`: the module whose forward has it.
  int until = 0;   ///< In `Block::ops`: the op after which the forward returns, or the variable names another value.

  bool operator==(const LocalVariable&) const = default;
};

/// The ops that a kind of module runs in its forward, on values and parameters of its own.
struct Block {
  std::string kind;  ///< "decoder_layer", "token_embedding", "head", ...
  std::vector<BlockModule> modules;
  std::vector<Shape> parameters;  ///< Shapes; a call binds them to the model's parameters.
  std::vector<Value> values;      ///< The first `num_inputs` come from outside.
  int num_inputs = 0;
  std::vector<Op> ops;       ///< In forward order.
  std::vector<int> outputs;  ///< In `values`: the call's results.
  std::vector<LocalVariable> locals;
  std::optional<Recording> recorded;  ///< In a captured model: its ops are OpKind::Recorded, without rules.

  bool operator==(const Block&) const = default;
};

/// Whether a value of the block is a cache of keys or values.
bool is_kv_cache(const Block& block, int value);

/// One run of a block. All modules of one call lie below `module`.
struct Call {
  int block = 0;                ///< In `Model::blocks`.
  int module = 0;               ///< In `Model::modules`: the base of `BlockModule::name`. -1 for ops after the root's
                                ///< forward, such as a training loop's loss.
  std::vector<int> modules;     ///< In `Model::modules`, one per block module; -1 like `module`.
  std::vector<int> parameters;  ///< In `Model::parameters`, one per block parameter.
  std::vector<int> inputs;      ///< In `Model::values`, one per block input.
  std::vector<int> outputs;     ///< In `Model::values`, one per block output.
  bool repeated = false;  ///< One of several equal calls in a row ("layers.{0..27}"), for checkpointing and grouping.
  int backward = 0;       ///< In `Model::passes`: the pass whose backward reaches it; -1 if none does.

  bool operator==(const Call&) const = default;
};

/// Whether a call that no plan can checkpoint was also recorded next to checkpointed ones. Libraries behave differently
/// there: transformers disables its cache and makes a mask.
inline bool is_recorded_beside_checkpoints(const Block& block, const Call& call, Dtype activation) {
  return !call.repeated && block.recorded && block.recorded->find(activation, true) != nullptr;
}

/// A run of repeated calls: "model.layers.{0..27}". The planner groups these into units and checkpoints them.
struct Stack {
  std::string name;        ///< "model.layers"
  std::string class_name;  ///< "Qwen3DecoderLayer"
  std::vector<int> calls;  ///< In `Model::calls`, in forward order.

  bool operator==(const Stack&) const = default;
};

/// A symbol of the spec with its value from the workload.
struct Dimension {
  std::string name;
  double value = 0;

  bool operator==(const Dimension&) const = default;
};

/// The dimension with this name; null if there is none. Models, plans, workloads and specs have such lists.
template <class D>
const D* find_dimension(const std::vector<D>& dimensions, std::string_view name) {
  for (const D& dimension : dimensions) {
    if (dimension.name == name) return &dimension;
  }
  return nullptr;
}

/// Whether a name lies below a module, as its parameters and modules do. Everything lies below the root, "".
inline bool is_inside(std::string_view name, std::string_view module) {
  return module.empty() || (name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.');
}

/// A value that lives until the forward of the root returns even if nothing uses it any more, such as the hidden states
/// that a model returns.
struct HeldValue {
  int value = 0;           ///< In `Model::values`.
  bool if_cached = false;  ///< Only if keys and values are cached (`Implementations::use_cache`).

  bool operator==(const HeldValue&) const = default;
};

/// A value in a local variable of a forward that continues after the call: that of the module, or of the innermost such
/// module around it.
struct NamedValue {
  int value = 0;   ///< In `Model::values`.
  int module = 0;  ///< In `Model::modules`.

  bool operator==(const NamedValue&) const = default;
};

/// A part of a step with several backwards, such as a GAN's: a forward, and the backward of one loss.
struct Pass {
  int call_end = 0;             ///< In `Model::calls`: its forward runs the calls from the previous pass's end to here.
  int loss = -1;                ///< In `Model::values`: the start of its backward.
  std::vector<int> gradients;   ///< In `roots_of`: models whose parameters get gradients. Another one that the backward
                                ///< runs through is frozen in it (`requires_grad_(False)`).
  std::vector<int> optimizers;  ///< In `Model::optimizers`: those that step after the backward, in order.

  bool operator==(const Pass&) const = default;
};

/// Gradients that the script clears in a step of several passes.
struct Clearing {
  int pass = 0;              ///< In `Model::passes`; their number means after the last one.
  int call = 0;              ///< In `Model::calls`: before it; before the backward if the pass has no more calls.
  std::vector<int> modules;  ///< In `roots_of`: all parameters below these.

  bool operator==(const Clearing&) const = default;
};

struct Model {
  std::string name;
  std::string source;  ///< The source of its figures.
  std::vector<Dimension> dimensions;
  std::vector<Module> modules;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<Value> values;
  std::vector<int> inputs;              ///< In `values`: those that the data loader puts on the device.
  std::vector<int> inputs_beside_root;  ///< In `values`, some of `inputs`: they reach an inner module, but not through
                                        ///< the arguments of the root's forward.
  std::vector<Block> blocks;
  std::vector<Call> calls;
  std::vector<Stack> stacks;
  std::vector<HeldValue> held;
  std::vector<NamedValue> named;
  int loss = -1;  ///< In `values`. The sum of several losses. With several passes, the loss of the last one.
  /// Empty for one forward and one backward, as in most models. Otherwise the modules below the root are models of
  /// their own (`roots_of`), which the script trains in turn, each with its own optimizer or a shared one.
  std::vector<Pass> passes;
  std::vector<std::vector<int>> optimizers;  ///< In a step of passes: the modules of `roots_of` for each optimizer.
  std::vector<Clearing> clearings;           ///< In a step of passes, in order.
  /// The call in the first micro-batch before which a captured script clears the gradients of the previous step. The
  /// number of calls means between loss and backward. -1 means after the optimizer's step, or before the forward.
  int clears_gradients_at = -1;
  bool keeps_gradients = false;  ///< They are zeroed in place (set_to_none=False), or never cleared.
  /// Whether the training loop can announce the last micro-batch of a step to a framework, as `no_sync` does. A
  /// captured script may lack such a line; then each micro-batch reduces gradients.
  bool says_last_micro_batch = true;
  std::int64_t tokens_per_step =
      0;                           ///< Tokens of one micro-batch that throughput counts (positions of the main stack).
  std::vector<std::string> notes;  ///< Facts about this model that a user must know, printed with the plan.
  /// Ops of a captured model with unknown cost, such as "mylib::scan". A step takes longer by that cost.
  std::vector<std::string> without_cost;
  /// For a captured model that runs compiled: the least share of the predicted compute time.
  double least_time_share = 1;
  /// Models beside this one, in the order of `Plan::also`, on the same batch. Nothing of them is trained.
  std::vector<Model> beside;

  bool operator==(const Model&) const = default;
};

/// True for the model of a captured script: its blocks are recordings.
inline bool is_captured(const Model& model) {
  return std::any_of(model.blocks.begin(), model.blocks.end(),
                     [](const Block& block) { return block.recorded.has_value(); });
}
/// Whether a block has an op that is wanted.
template <class IsWanted>
bool has_op(const Model& model, IsWanted is_wanted) {
  return std::any_of(model.blocks.begin(), model.blocks.end(),
                     [&](const Block& block) { return std::any_of(block.ops.begin(), block.ops.end(), is_wanted); });
}
/// Whether a step has several backwards, or several models with optimizers of their own.
inline bool has_passes(const Model& model) {
  return !model.passes.empty();
}

/// Whether a step begins with the gradients of the previous one.
inline bool begins_with_gradients(const Model& model) {
  return model.clears_gradients_at >= 0 || model.keeps_gradients;
}

/// The most models of a step of passes.
inline constexpr int kMostRoots = 4;

/// The modules that fully_shard makes roots, each with its own gathers and reductions: in a step of passes the models
/// below the module that contains them, otherwise module 0.
std::vector<int> roots_of(const Model& model);

/// In a step of passes: the element of `roots_of` that contains a module.
int root_of(const Model& model, int module);

/// Its index in `roots_of`; -1 for the module that contains the models of a step of passes.
int root_number(const Model& model, int module);

/// Whether a module is one of the models of a step of passes.
bool is_model_of_passes(const Model& model, int module);

/// In a step of passes: whether a backward, in `Model::passes`, gives gradients to the parameters of a module.
bool gives_gradients(const Model& model, int pass, int module);

/// In a step of passes: the element of `Model::optimizers` that steps a module's parameters; -1 if none does.
int optimizer_of(const Model& model, int module);

/// The parent of a module, parameter or buffer by its name: "layers.0" for "layers.0.mlp"; "" (the root) for a name
/// without a dot.
std::string_view parent_name(std::string_view name);

/// Sum over all parameters. Tied ones count once, packed ones with the numbers that they pack.
std::int64_t num_parameters(const Model& model);
std::int64_t num_trainable_parameters(const Model& model);
std::int64_t num_gradient_parameters(const Model& model);
/// Bytes of the buffers that PyTorch registers.
Bytes buffer_bytes(const Model& model);
/// Parameters that one token meets: for each Experts op only as many experts as a token is sent to.
std::int64_t num_active_parameters(const Model& model);

/// A digest of the parameters' names, shapes and ties (16 hexadecimal digits).
std::string fingerprint_of(const Model& model);

/// Sets `receives_gradient` of every parameter from `trainable` and the graph. A value requires a gradient if it is
/// computed from a trainable parameter or from such a value, except through a detach. A parameter receives one if its
/// op's output requires a gradient and leads to the loss.
void derive_gradient_flow(Model& model);

/// Per call: the values of its block that require a gradient [num_values] and lie on a path to the loss. Both
/// interpreters use this, so that they agree.
struct GradientFlow {
  std::vector<std::vector<bool>> requires_grad;  ///< [num_calls][num block values]
  std::vector<std::vector<bool>> reaches_loss;   ///< [num_calls][num block values]
  /// [num_calls][num outputs] Its gradient comes from outside the call: another call leads it to the loss, or it is the
  /// loss.
  std::vector<std::vector<bool>> output_reaches_loss;
};
GradientFlow gradient_flow(const Model& model);

}  // namespace fsdp
