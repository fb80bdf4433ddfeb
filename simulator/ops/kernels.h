#pragma once

// A block as PyTorch runs it: the ATen calls of its ops, with what each allocates, saves for backward and moves.
//
// An op states what is computed ("rms_norm"); the runtime's implementation decides how: one fused kernel, or eight
// calls in fp32 with eight temporaries. The op rules (simulator/ops/op_rules.h) expand a block to kernels. One generic
// walk over them (simulator/ops/tape.h) plays autograd, so a rule never states when a tensor dies.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/model/model.h"
#include "core/report/report.h"

namespace fsdp::simulator {

/// One name of a tensor: several slots can share one storage (views).
struct Slot {
  int storage = -1;  ///< An index of `KernelProgram::storages`.
  std::int64_t elements = 0;
  Dtype dtype = Dtype::Float32;
  bool differentiable = true;  ///< False for indices, masks and random states.
  Shape strides = {};          ///< Empty for those of its shape.
  Shape shape = {};            ///< Set with `strides`.
  bool is_dtensor = false;     ///< Autograd never adds its gradient to another one in place.

  std::int64_t bytes() const { return elements * size_of(dtype).count(); }
};

/// Memory that is allocated and freed as one.
struct Storage {
  enum class Kind : std::uint8_t {
    Inside,     ///< Made by a kernel of this block.
    Input,      ///< Made by another call; `index` is the block input.
    Parameter,  ///< An unsharded parameter; `index` is the block parameter.
  };
  Kind kind = Kind::Inside;
  int index = -1;
  std::int64_t bytes = 0;
  int op = -1;                ///< The op in `Block::ops` that makes it.
  bool is_parameter = false;  ///< Inside: a whole copy of a parameter, for one read of it.
  int cast_of = -1;  ///< Inside: autocast's copy of this block parameter, which it caches if the parameter is trained.
};

/// The origin of the gradient of an input.
enum class GradRule : std::uint8_t {
  None,       ///< Not differentiable in this input.
  Fresh,      ///< A new tensor.
  FreshView,  ///< A new tensor, passed on as a view (reshaped, transposed): autograd never adds to it in place.
  Alias,      ///< The gradient of the output itself, or a view of it.
  Kept,       ///< A tensor that the forward made and the kernel saved: `KernelInput::kept`.
  InPlace,    ///< The gradient of an output, `KernelInput::of_output`, written over and passed on as a view; or of a
              ///< contiguous copy of it, if it is not contiguous.
};

/// Memory that a library takes while a call runs, which depends on the machine (core/model/kernel_workspaces.h).
struct Workspace {
  int call = -1;             ///< An index of `KernelProgram::calls`. -1 if it takes nothing.
  std::int64_t assumed = 0;  ///< Bytes of a call without a measurement.
};

/// The buffer with which Triton empties the GPU's cache between the runs of a kernel that it measures
/// (get_empty_cache_for_benchmark of Triton 3.6).
inline constexpr std::int64_t kTritonBenchmarkBytes = std::int64_t{256} << 20;

struct KernelInput {
  int slot = -1;
  GradRule grad = GradRule::None;
  /// A broadcast operand: its gradient is a sum, made after the node and its temporaries are done,
  bool is_summed = false;
  std::int64_t unsummed = 0;               ///< of these bytes from the node; 0 if of the output's gradient.
  std::int64_t sum_bytes = 0;              ///< Bytes of the sum if it has another dtype and is cast.
  std::vector<std::int64_t> scratch = {};  ///< Bytes that live while the sum, or else the gradient, is computed.
  Workspace workspace = {};                ///< Workspace of the call that makes only its gradient.
  int kept = -1;                           ///< For GradRule::Kept: the slot, of the gradient's size.
  int of_output = 0;                       ///< For GradRule::InPlace: an index of the kernel's outputs.
  int benchmark = -1;                      ///< As `Kernel::benchmark`, of the call that makes its gradient.
};

struct SavedSlot {
  int slot = -1;
  int needed_for = -1;  ///< Index of the input whose gradient needs it. -1 for any.
};

/// When a temporary of a backward node lives.
enum class TempLife : std::uint8_t {
  Whole,   ///< From before the gradients until the node returns.
  Early,   ///< Before the gradients are made.
  Late,    ///< From after the gradients until the node returns.
  Brief,   ///< After the gradients, with the other Brief ones next to it in the list.
  Next,    ///< Like Brief, after the Brief ones before it in the list are freed.
  Handed,  ///< Like Late, but made before the Brief ones before it in the list are freed.
};

struct BackwardTemp {
  std::int64_t bytes = 0;
  TempLife life = TempLife::Late;
  int needed_for = -1;  ///< Index of the input whose gradient needs it. -1 for any.
  MemoryCategory category = MemoryCategory::Temp;
};

/// What the backward of a Python Function does next, in the order of its code.
struct BackwardStep {
  enum class Kind : std::uint8_t {
    Make,       ///< Allocates tensor `index` with `bytes`.
    Drop,       ///< Frees it.
    Gradient,   ///< Makes the gradient of the input `index`, requested or not.
    Workspace,  ///< Calls cuBLAS, which wants its workspace; with `index` 1 cuBLASLt.
  };
  Kind kind = Kind::Make;
  int index = 0;  ///< Tensors are numbered from 0 in the order of their Make steps.
  std::int64_t bytes = 0;
};

/// The effect of a call on the memory order of gradients.
struct GradientOrder {
  enum class Kind : std::uint8_t {
    Plain,       ///< Elementwise: gradients have the output's order. Others: contiguous.
    Reshaped,    ///< A view of shape `input` as `output`. A gradient that has no view as `input` is copied.
    Transposed,  ///< Exchanges dimensions `dim` and `other_dim` of `input`.
    Cut,         ///< `output` is concatenated along `dim`: gradients are parts of its gradient.
    Flattened,   ///< The gradient of `output` becomes a view [rows, output.back()], or a copy if there is none.
    Dense,       ///< The gradient of the output is copied if it is not contiguous.
    Unrolled,    ///< Like Flattened, but the copy lives with the gradient, until the node returns.
    Copied,      ///< The gradient of `output` is copied for the duration of the node if it is not contiguous.
    CopiedLate,  ///< Like Copied, but after the gradients of the inputs were made.
    Followed,    ///< Gradients have the order of the inputs.
    Joined,      ///< A gradient of shape `input` has its second dimension innermost if those of the outputs have.
    Turned,      ///< Gradients are contiguous after exchanging dimensions `dim` and `other_dim`.
  };
  Kind kind = Kind::Plain;
  Shape input = {};
  Shape output = {};
  int dim = 0;
  int other_dim = 0;
};

enum class KernelKind : std::uint8_t {
  View,         ///< Nothing runs on the device.
  Elementwise,  ///< Bound by memory bandwidth: pointwise, reductions, copies, normalization.
  Gemm,         ///< A matrix product by cuBLAS, which wants its workspace.
  GemmLt,       ///< A product with a bias: the forward is cuBLASLt's, with a workspace beside cuBLAS's.
  Convolution,
  Attention,  ///< Fused attention.
  Read,       ///< The cast or gather of a parameter: memory bandwidth, beside the collective.
};

/// The part of a model's forward that a call belongs to.
enum class ForwardPart : std::uint8_t {
  Inside,
  AfterAutocast,  ///< Autocast's context has been left, and its cache is gone.
  AfterReturn,    ///< The model has returned, and dropped the inputs of its last call.
};

/// What a loss has the unit of the head do while it runs (`Layout::loss`).
enum class UnitCall : std::uint8_t { None, Gather, Reduce, Reshard };

/// One ATen call.
/// Sizes of a product of matrices [m, k] x [k, n], `batches` of them.
struct ProductSizes {
  std::int64_t batches = 0;  ///< 0 if the kernel is no product.
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;

  double flops() const {
    return 2.0 * static_cast<double>(batches) * static_cast<double>(m) * static_cast<double>(n) *
           static_cast<double>(k);
  }
  bool operator==(const ProductSizes&) const = default;
};

struct Kernel {
  KernelKind kind = KernelKind::Elementwise;
  int op = 0;         ///< An index of `Block::ops`.
  int runs_for = -1;  ///< A slot that must require a gradient for the call to be made. -1 if it always is.
  std::vector<KernelInput> inputs;  ///< In the order in which the backward makes their gradients.
  std::vector<int> outputs;         ///< Slots, in order of allocation.
  std::vector<SavedSlot> saved;
  bool keeps_inputs =
      false;               ///< Selective checkpointing that keeps its outputs keeps its inputs: the code returns them.
  int freed_early = -1;    ///< A saved slot that the node frees before it makes gradients: compiled code has used it.
  std::vector<int> keeps;  ///< Slots that a Function's object names until the backward has ended.
  bool saves_when_done = false;         ///< A Python Function, which saves after its forward has run.
  UnitCall unit_call = UnitCall::None;  ///< After the call: the loss has the head's unit do something.
  /// Elements that ranks with other experts exchange in this call, of the dtype of its output. The backward exchanges
  /// the gradient in turn, if there is one. 0: nothing.
  std::int64_t exchanged = 0;
  int gradient_of = -1;  ///< Slot of a parameter whose gradient the outputs are, or for UnitCall::Reduce have become.
  bool is_on_backward_thread = false;       ///< The forward runs a backward, and this call is in it.
  std::vector<int> holds;                   ///< Slots that a local variable keeps alive until this call returns.
  std::vector<std::int64_t> forward_temps;  ///< Bytes, allocated after the outputs, freed when the call returns.
  int late_outputs = 0;                     ///< The number of last outputs that are made after the temporaries.
  ForwardPart part = ForwardPart::Inside;
  std::vector<BackwardTemp> backward_temps;
  /// In place of these and of the rules of `inputs`: the whole backward, step by step. What it makes and does not drop
  /// goes when it returns.
  std::vector<BackwardStep> backward_steps;
  /// The first call with this number in a process has Triton measure some kernels, with a buffer. -1: none does.
  int benchmark = -1;
  Workspace forward_workspace;
  std::vector<Workspace> backward_workspaces;  ///< [1 << num_inputs] Of one call that makes all gradients, by the set
                                               ///< of requested ones, a bit each. Empty if each has a call of its own.
  GradientOrder order;
  ProductSizes product;       ///< Sizes of the forward.
  int left = 0;               ///< Index among the first two inputs: the first matrix of the product.
  double flops = 0;           ///< FLOPs of the forward. The backward costs the same for each Fresh gradient of a
                              ///< product,
  double backward_flops = 0;  ///< or this, if not 0.
  // Beside them, FLOPs of products of 8-bit floats.
  double float8_flops = 0;
  double backward_float8_flops = 0;
  bool sums_in_reverse = false;  ///< The engine sums and casts gradients from the last of `inputs` to the first.
  bool repeats_product = false;  ///< The backward makes the product of the forward again.
  double backward_bytes = 0;     ///< Memory traffic of the backward beside its products.
  int backward_launches = 1;     ///< Kernels that the backward launches.
  double extra_bytes = 0;  ///< Memory traffic of the forward beyond reading the inputs and writing the outputs once.
};

/// A block expanded to kernels.
struct KernelProgram {
  std::vector<Slot> slots;
  std::vector<Storage> storages;
  std::vector<Kernel> kernels;      ///< In forward order; those of one op are neighbors.
  std::vector<int> value_slot;      ///< [num block values]
  std::vector<int> parameter_slot;  ///< [num block parameters]
  std::vector<int> returned;        ///< Slots of the logits as the model returns them. Empty: as the loss reads them.
  std::vector<std::string> calls;   ///< The calls to look up for the CPU, as text_of(KernelCall).
  std::optional<Error> refusal;     ///< Why PyTorch would not run the block with the requested implementations.
};

}  // namespace fsdp::simulator
