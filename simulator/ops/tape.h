#pragma once

// A tape: what one run of a block allocates and frees, forward and backward, in the order in which PyTorch does it.
//
// The tape is recorded once for a kind of call (the same block, the same trainable parameters, the same checkpoint
// mode) and replayed for every layer. tape.cpp says how autograd is played.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/model/kernel_workspaces.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/report/report.h"
#include "simulator/ops/kernels.h"
#include "simulator/ops/pool_bytes.h"

namespace fsdp::simulator {

struct TapeEvent {
  enum class Kind : std::uint8_t {
    Alloc,           ///< Storage `storage` comes into being with `bytes`.
    Free,            ///< It goes.
    AllocParamGrad,  ///< The gradient of block parameter `storage` is made.
    AddParamGrad,    ///< and joins what the parameter's gradient already holds.
    ReleaseInput,    ///< The call is done with block input `storage`.
    ReleaseOutput,   ///< The call is done with its own output in storage `storage`.
    ReleaseGradOut,  ///< The gradient of block output `storage` has been used.
    ShareGrad,       ///< Storage `storage`, which is handed out next, is still used here,
    UnshareGrad,     ///< and no longer.
    EmitGrad,        ///< Storage `storage` is a gradient of block input `bytes`: one of those that are summed.
    ReleaseGradIn,   ///< The gradient of block input `storage` that an earlier backward emitted has been used up.
    ForwardGradOut,  ///< The gradient of block output `storage` is also one of block input `bytes`.
    HoldInput,       ///< Block input `storage` is held until the end of the backward,
    HoldOwn,         ///< or storage `storage`.
    Carry,           ///< `storage` or what HoldOwn named before this lives into the next micro-batch, with `bytes`.
    DropCarried,     ///< It goes: the `storage`th that was carried.
    ReleaseParam,    ///< The recomputation is done with block parameter `storage`, which it had saved.
    Workspace,       ///< cuBLAS wants its workspace; `storage` 1: cuBLASLt its own.
  };
  Kind kind = Kind::Alloc;
  bool is_view = false;  ///< For gradients: autograd will not add to it in place. For Carry: it stands after HoldOwn.
  MemoryCategory category = MemoryCategory::Activation;
  std::int32_t storage = 0;
  std::int64_t bytes = 0;
};

/// The part of a tape that a byte-counting sink needs: an event that has to be played, or the sums of a run of
/// allocations and frees of storages that nothing outside of the tape holds. In blocks of 512 bytes, by the pool of
/// their size; peaks are above what is there when the run begins.
struct TapeRun {
  std::int32_t event = -1;  ///< The place of the event that has to be played; -1: a run.
  std::int64_t small = 0;   ///< By how much a run changes the pool of small requests,
  std::int64_t large = 0;   ///< and that of large ones.
  std::int64_t small_peak = 0;
  std::int64_t large_peak = 0;
  std::int64_t peak = 0;  ///< Peak of both together.

  /// A tensor of so many bytes comes, or, with a count of -1, goes.
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
    double convolution_flops = 0;  ///< Convolutions.
    double attention_flops = 0;    ///< Fused attention.
    double bytes = 0;              ///< Read and written by the other kernels.
    int num_kernels = 0;
    std::vector<ProductSizes> products = {};  ///< The products in `gemm_flops` whose sizes are known.
    /// In which the FLOPs are computed, where it is not that of the activations: under autocast, for one.
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
  /// First those of all that is played in one go, then those of each piece that can be played by itself, in order.
  using RunsOfPieces = std::vector<Runs>;
  int num_storages = 0;
  std::vector<TapeEvent> forward;
  std::vector<Range> forward_of_op;    ///< [num ops]
  std::vector<TapeEvent> recompute;    ///< Before the backward of the call; empty without checkpointing.
  std::vector<Range> recompute_of_op;  ///< [num ops] The last one's has what is freed at the end; may be empty.
  std::vector<TapeEvent> backward;
  std::vector<Range> backward_of_op;  ///< [num ops] The last op's events come first.
  std::vector<Range> hooks_of_op;     ///< [num ops] Of `backward`, after the op's: what FSDP2's hooks hand on when they
                                      ///< have run. Empty without hooks.
  /// Per block output: where it lies. Kind Input: it is that input; Parameter: an unsharded parameter.
  std::vector<Storage> output;             ///< [num outputs]; `index` is the storage for Inside.
  std::vector<std::int64_t> output_bytes;  ///< [num outputs] Of the value, which can be a part of its storage.
  std::vector<bool> output_is_kept;        ///< [num outputs] The call itself holds it until a ReleaseOutput.
  std::vector<int> storage_op;             ///< [num storages] The op that makes it.
  std::vector<OpWork> work;                ///< [num ops]
  std::vector<bool> recomputed;            ///< [num ops] Run again before the backward.
  std::vector<int> kept_parameters;        ///< Parameters of the block: saved by what runs again, with
                                           ///< `keeps_parameters`.
  std::vector<Shape> input_grad_strides;   ///< [num inputs] Of the gradients handed out; empty: in order, or none.
  std::vector<std::string> unmeasured;     ///< Calls, each once, of which it is only assumed what they take.
  std::int64_t largest_convolution = 0;    ///< Input, weight and output of it, in bytes; 0 without one.
  std::int64_t kept_bytes = 0;             ///< Lives from forward to backward: made inside, outputs not counted.
  std::int64_t backward_peak = 0;          ///< Highest bytes inside during recomputation and backward.
  // simulator/ops/tape_runs.h
  PoolBytes kept_pools;         ///< `kept_bytes` and
  PoolBytes peak_pools;         ///< `backward_peak`, in which each pool has a moment of its own.
  RunsOfPieces forward_runs;    ///< In one go: all of it,
  RunsOfPieces recompute_runs;  ///< and here, too.
  RunsOfPieces backward_runs;   ///< All but the hooks after its last op.
};

/// The differences between the calls of one block.
struct TapeContext {
  std::vector<bool> input_requires_grad;        ///< [num inputs]
  std::vector<bool> output_reaches_loss;        ///< [num outputs]
  std::vector<bool> parameter_requires_grad;    ///< [num parameters]
  std::vector<Shape> output_grad_strides = {};  ///< [num outputs] Of gradients that come from outside, where they do
                                                ///< not lie in the order of their shape; empty: all of them do.
  CheckpointMode mode = CheckpointMode::None;
  std::vector<bool> op_is_kept;  ///< [num ops] Selective checkpointing keeps its outputs.
  bool early_stop = true;
  bool keeps_parameters = false;  ///< A recomputation saves parameters that others may release meanwhile.
  bool keep_logits = false;
  std::vector<Span> hooks = {};  ///< Ops of modules before which a post-backward hook stands, inner ones first.
  const KernelWorkspaces* workspaces = nullptr;  ///< For a CPU, with
  int threads = 1;                               ///< so many of each rank.

  bool operator==(const TapeContext&) const = default;
};

Tape record_tape(const Block& block, const KernelProgram& program, const TapeContext& context);

}  // namespace fsdp::simulator
