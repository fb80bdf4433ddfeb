#pragma once

// A tape: the allocations and frees of one run of a block, forward and backward, in PyTorch's order.
//
// The tape is recorded once for a kind of call (the same block, the same trainable parameters, the same checkpoint
// mode) and replayed for every layer. tape.cpp explains how we play autograd.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/model/kernel_workspaces.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/nested_checkpoints.h"
#include "core/plan/plan.h"
#include "core/report/report.h"
#include "simulator/ops/kernels.h"
#include "simulator/ops/pool_bytes.h"

namespace fsdp::simulator {

struct TapeEvent {
  enum class Kind : std::uint8_t {
    Alloc,           ///< Allocates storage `storage` with `bytes`.
    Free,            ///< Frees it.
    AllocParamGrad,  ///< Makes the gradient of block parameter `storage`.
    AddParamGrad,    ///< Adds it to the parameter's existing gradient.
    ReleaseInput,    ///< The call no longer needs block input `storage`.
    ReleaseOutput,   ///< The call no longer needs its own output in storage `storage`.
    ReleaseGradOut,  ///< The gradient of block output `storage` has been used.
    ShareGrad,       ///< Storage `storage`, which the next event passes on, is still used here,
    UnshareGrad,     ///< and no longer.
    EmitGrad,        ///< Storage `storage` is a gradient of block input `bytes`: one term of its sum.
    ReleaseGradIn,   ///< The gradient of block input `storage` from an earlier backward has been used up.
    ForwardGradOut,  ///< The gradient of block output `storage` is also one of block input `bytes`.
    EmitInput,  ///< Block input `storage`, written over, is a gradient of block input `bytes`. Takes the call's hold.
    HoldInput,  ///< Holds block input `storage` until the end of the backward,
    HoldOwn,    ///< or storage `storage`.
    HoldInForward,  ///< Storage `storage` lives until the model's forward and its loss are over,
    LeaveAutocast,  ///< which they are.
    Carry,          ///< `storage`, or that of the HoldOwn before this, lives into the next micro-batch, with `bytes`.
    DropCarried,    ///< Frees the `storage`th carried one.
    ReleaseParam,   ///< The recomputation no longer needs block parameter `storage`, which it had saved.
    CallUnit,       ///< The loss has the head's unit do the UnitCall `storage`.
    Benchmark,      ///< If it is the first with this `storage`: makes and frees a buffer of `bytes`.
    Exchange,       ///< Ranks with other experts exchange `bytes` of the Dtype `storage`.
    Workspace,      ///< cuBLAS requests its workspace; with `storage` 1 cuBLASLt its own. With 2 and 3 on autograd's
                    ///< thread.
  };
  Kind kind = Kind::Alloc;
  bool is_view = false;  ///< For gradients: autograd will not add to it in place. For Carry: it follows HoldOwn.
  MemoryCategory category = MemoryCategory::Activation;
  std::int32_t storage = 0;
  std::int64_t bytes = 0;
};

/// The part of a tape that a byte-counting sink needs: an event to play, or the sums of a run of allocations and frees
/// of storages that nothing outside the tape holds. In blocks of 512 bytes, by the pool of their size; peaks are
/// relative to the start of the run.
struct TapeRun {
  std::int32_t event = -1;  ///< The index of the event to play. -1 for a run.
  std::int64_t small = 0;   ///< Change of the pool of small requests in a run.
  std::int64_t large = 0;   ///< Change of that of large ones.
  std::int64_t small_peak = 0;
  std::int64_t large_peak = 0;
  std::int64_t peak = 0;  ///< Peak of both together.

  /// Adds a tensor of this size, or removes it with a count of -1.
  void add(std::int64_t bytes, std::int64_t count) {
    PoolBytes pools{.small = small, .large = large};
    pools.add(bytes, count);
    small = pools.small;
    large = pools.large;
    small_peak = std::max(small_peak, small);
    large_peak = std::max(large_peak, large);
    peak = std::max(peak, small + large);
  }
};

/// Work of one op on the device.
struct OpWork {
  struct Part {
    double gemm_flops = 0;         ///< Matrix products.
    double float8_flops = 0;       ///< Those of 8-bit floats, which are not among them.
    double convolution_flops = 0;  ///< Convolutions.
    double attention_flops = 0;    ///< Fused attention.
    double bytes = 0;              ///< Read and written by the other kernels.
    int num_kernels = 0;
    std::vector<ProductSizes> products = {};  ///< The products in `gemm_flops` whose sizes are known.
    /// The dtype of the FLOPs, if it is not that of the activations, such as under autocast.
    std::optional<Dtype> arithmetic = {};
  };
  Part forward;
  Part backward;
};

struct Tape {
  /// Events [first, last) of one op.
  struct Range {
    std::int32_t first = 0;
    std::int32_t last = 0;
  };
  /// All events of a range.
  struct Runs {
    Range of;
    std::vector<TapeRun> runs;
  };
  /// First those of all pieces together, then those of each piece that can be played by itself, in order.
  using RunsOfPieces = std::vector<Runs>;
  int num_storages = 0;
  std::vector<TapeEvent> forward;
  std::vector<Range> forward_of_op;    ///< [num ops]
  std::vector<TapeEvent> recompute;    ///< Before the backward of the call. Empty without checkpointing.
  std::vector<Range> recompute_of_op;  ///< [num ops] The last one's contains the frees at the end; may be empty.
  std::vector<TapeEvent> backward;
  std::vector<Range> backward_of_op;  ///< [num ops] The last op's events come first.
  std::vector<Range> hooks_of_op;     ///< [num ops] Part of `backward`, after the op's: gradients that FSDP2's hooks
                                      ///< pass on after they have run. Empty without hooks.
  /// The storage of each block output. Kind Input: it is that input; Parameter: an unsharded parameter.
  std::vector<Storage> output;             ///< [num outputs]; `index` is the storage for Inside.
  std::vector<std::int64_t> output_bytes;  ///< [num outputs] Bytes of the value, which can be a part of its storage.
  std::vector<bool> output_is_kept;        ///< [num outputs] True if the call itself holds it until a ReleaseOutput.
  std::vector<int> storage_op;             ///< [num storages] The op that makes it.
  std::vector<OpWork> work;                ///< [num ops]
  std::vector<bool> recomputed;            ///< [num ops] True if it runs again before the backward.
  std::vector<bool> recomputed_inside;     ///< [num ops] True if it runs again inside of it. Empty if none does.
  std::vector<std::int64_t> on_host;       ///< Bytes of each input that a checkpoint keeps on the host.
  std::vector<int> kept_parameters;        ///< Parameters that a recomputation saves, with `keeps_parameters`.
  std::vector<Shape> input_grad_strides;   ///< [num inputs] Strides of the gradients passed out. Empty for contiguous
                                           ///< or none.
  std::vector<std::string> unmeasured;     ///< Calls, each once, whose time or memory we only assume.
  std::int64_t largest_convolution = 0;    ///< Input, weight and output of it, in bytes; 0 without one.
  std::int64_t kept_bytes = 0;             ///< Bytes from forward to backward: made inside, without outputs.
  std::int64_t backward_peak = 0;          ///< Highest bytes inside during recomputation and backward.
  // simulator/ops/tape_runs.h
  PoolBytes kept_pools;         ///< `kept_bytes` and
  PoolBytes peak_pools;         ///< `backward_peak`, with a separate moment for each pool.
  RunsOfPieces forward_runs;    ///< All of it as one,
  RunsOfPieces recompute_runs;  ///< and here, too.
  RunsOfPieces backward_runs;   ///< All but the hooks after its last op.
};

/// The differences between the calls of one block.
struct TapeContext {
  std::vector<bool> input_requires_grad;        ///< [num inputs]
  std::vector<bool> output_reaches_loss;        ///< [num outputs]
  std::vector<bool> parameter_requires_grad;    ///< [num parameters]
  std::vector<Shape> output_grad_strides = {};  ///< [num outputs] Strides of gradients from outside that are not
                                                ///< contiguous. Empty if all are contiguous.
  CheckpointMode mode = CheckpointMode::None;
  std::vector<bool> op_is_kept;             ///< [num ops] Selective checkpointing keeps its outputs.
  std::vector<InnerCheckpoint> inner = {};  ///< For CheckpointMode::Nested.
  bool early_stop = true;
  bool offloads_inputs = false;   ///< A checkpoint keeps its inputs on the host.
  bool keeps_parameters = false;  ///< A recomputation saves parameters that others may release meanwhile.
  bool keep_logits = false;
  std::vector<Span> hooks = {};  ///< Ops of modules with a post-backward hook before them, inner ones first.
  const KernelWorkspaces* workspaces = nullptr;  ///< Measurements of a CPU, with
  int threads = 1;                               ///< this number of threads per rank.

  bool operator==(const TapeContext&) const = default;
};

Tape record_tape(const Block& block, const KernelProgram& program, const TapeContext& context);

}  // namespace fsdp::simulator
