#pragma once

// A number for every tensor that a training step can hold, so that the walk, the allocator and the explanation identify
// tensors without a table of names. Numbers are dense and fixed per plan.

#include <cstdint>
#include <vector>

#include "core/model/model.h"
#include "core/plan/sharding.h"
#include "simulator/ops/newton_schulz.h"

namespace fsdp::simulator {

/// Tensors of one parameter.
enum class ParameterTensor : std::uint8_t {
  Sharded,
  Unsharded,
  Grad,             ///< Unsharded.
  SecondGrad,       ///< Gradient of another use, until it is added to the first.
  AccumulatedGrad,  ///< Over micro-batches, in the reduce dtype.
  SmallerShard,     ///< Kept by an integer reshard_after_forward.
  FirstMoment,      ///< Also SGD's momentum.
  SecondMoment,
  StepCount,
  FirstScale,  ///< For coded moments.
  SecondScale,
  OptimizerTemp,
  SecondOptimizerTemp,
  Full,               ///< Before it is sharded, at initialization.
  SummedGrad,         ///< Sum of several uses, if autograd did not add in place.
  PaddedGrad,         ///< Before a reduce-scatter that pads one gradient at a time.
  HostCopy,           ///< Its shard from the host, with CPU offload, and
  CastShard,          ///< the same in param_dtype.
  WaitingGrad,        ///< Gradient of the uses so far, if an earlier backward has left a gradient, and
  SummedWaitingGrad,  ///< their sum, if autograd did not add in place.
  DecayedGrad,        ///< With weight decay, in a for-loop optimizer.
  OtherSmallerShard,  ///< Shard of the next forward, if a step without a backward has left one.
  MissingGrad,        ///< Zeros in a flat gradient for a parameter without a gradient, and
  GradPadding,        ///< before a parameter with one; under ZeRO-3 after a cut one.
  Float,              ///< Before it is cast, at initialization.
  Fetched,            ///< ZeRO-3: the output of the gather whose last requested parameter this is,
  GroupMaster,        ///< and the fp32 copy of the sub-group that begins with it.
  ClonedGrad,         ///< ZeRO with offload: a clone of a gradient that is larger than the bucket.
  SecondCopy,         ///< ZeRO-3 with hpZ: its part of the copy that neighbors share.
  GroupGrad,          ///< With a part of the optimizer on the host: gradients of a sub-group on the device.
  QuantizedPart,      ///< ZeRO-3 with qwZ, in the same gather as Fetched: the rank's sent part,
  PartScales,         ///< with its scales,
  Scales,             ///< those of all ranks, and
  Dequantized,        ///< the received values, in fp16.
  ReducedPart,        ///< ZeRO-3 with qgZ: the rank's part of the sum of its gradients.
  DriveGrad,          ///< With the optimizer on a drive: the rank's part, in fp32.
  OtherUnsharded,     ///< ZeRO-3: gathered again, while a recomputed block keeps it.
  FirstTable,         ///< The values of the codes of a moment.
  SecondTable,
  Float8Scale,  ///< For a weight that is gathered in 8 bits.
};
inline constexpr int kNumParameterTensors = static_cast<int>(ParameterTensor::Float8Scale) + 1;

/// Tensors of one unit.
enum class UnitTensor : std::uint8_t {
  Cast,  ///< Shards in param_dtype, before the all-gather.
  AllGather,
  ReduceScatterInput,
  ReduceScatterOutput,
  ReceivedParts,  ///< Received parts of a reduce-scatter that sums them itself.
  ShardedGrad,
  NewShardedGrad,    ///< Gradient of a later micro-batch, until it is added.
  OtherAllGather,    ///< Buffer of a pass that begins while the previous pass's output still exists.
  FlatShard,         ///< FSDP1's flat parameter, and
  FlatFull,          ///< the same before it is sharded,
  FlatPadded,        ///< its last part before padding to full size.
  FlatGrad,          ///< The concatenated gradients of a pass.
  NewFlatGrad,       ///< Gradient of a later micro-batch, and
  NextFlatGrad,      ///< of another pass, until it is added.
  FlatGradTail,      ///< Zeros at its end.
  CastFlatGrad,      ///< In the reduce dtype.
  LossReduceInput,   ///< The same for gradients that the loss makes in the forward, and
  LossShardedGrad,   ///< the reduced ones.
  Float8Magnitudes,  ///< While a weight is cast to 8 bits: the absolute values, and later the clamped ones,
  Float8Widened,     ///< the shard in fp32, and
  Float8Scaled,      ///< times the scale.
};
inline constexpr int kNumUnitTensors = static_cast<int>(UnitTensor::Float8Scaled) + 1;

/// Tensors that exist once.
enum class SingleTensor : std::uint8_t {
  CopyMetadata,
  ForwardWorkspace,
  BackwardWorkspace,
  ForwardLtWorkspace,
  BackwardLtWorkspace,
  Benchmark,  ///< Triton's buffer while it measures kernels.
  LossGrad,
  CastLoss,      ///< The loss in output_dtype, as the root returns it, and
  CastLossGrad,  ///< its gradient cast back.
  LastLoss,      ///< The loss of the last micro-batch,
  LastLeaf,      ///< a leaf of its graph, and
  LastLeafGrad,  ///< its gradient.
  ClipBuffer,
  ClipNorms,  ///< Four of them: stacked, and in the places of their reduction.
  ClipNorms2,
  ClipNorms3,
  ClipNorms4,
  ClipScalar,  ///< Four: the total norm, its reduced copy, the factor, the factor clamped.
  ClipScalar2,
  ClipScalar3,
  ClipScalar4,
  ClipZero,   ///< FSDP1's tensor for the norm of no gradients, from its first clipping on.
  Broadcast,  ///< Two: flat copies for DDP's broadcasts.
  Broadcast2,
  UsedMap,     ///< The map of used parameters, with DDP's find_unused_parameters.
  StateTable,  ///< Two: the values of the codes of all first moments, and of all second ones.
  StateTable2,
  UpdateTensor,  ///< The first of `kNumUpdateTensors`, which the update of one tensor makes.
  UpdateTensor2,
  UpdateTensor3,
  UpdateTensor4,
  UpdateTensor5,
  UpdateTensor6,
  UpdateTensor7,
  UpdateTensor8,
  UpdateTensor9,
  UpdateTensor10,
  ZeroFlat,  ///< ZeRO-1 and 2: all trained parameters; ZeRO-3: the rank's parts of them,
  ZeroPadding,
  ZeroMaster,  ///< the rank's part of them in fp32,
  ZeroFirstMoment,
  ZeroSecondMoment,
  ZeroStepCount,
  ZeroBucket,       ///< the buffer for reductions of gradients,
  ZeroOtherBucket,  ///< the second of two, or with ZeRO-3 over Gloo a reduce-scatter's received parts,
  ZeroReduced,      ///< a bucket in one piece,
  ZeroPart,         ///< gradients that reach into the rank's part, of the first micro-batch that reduces
  ZeroLaterPart,    ///< and of a later one,
  ZeroEnd,          ///< zeros after them,
  ZeroGrad,         ///< the gradient of the rank's part, and
  ZeroGrad32,       ///< the same in the dtype of the optimizer's copy,
  ZeroNormInput,    ///< a gradient in fp64,
  ZeroNorm,         ///< the norm of the previous step,
  ZeroNewNorm,
  ZeroOptimizerTemp,
  ZeroOtherOptimizerTemp,
  ZeroLossPart,  ///< the loss over the number of micro-batches,
  ZeroScaledLoss,
  ZeroOverflow,  ///< For ZeRO-3: whether a gradient is not finite,
  ZeroBarrier,   ///< the tensor of the last barrier, and
  ZeroBarrierSum,
  ZeroHostGrad,    ///< with offload: the sum with a gradient from the host,
  ZeroMagnitudes,  ///< in fp16: the gradients without their signs, and
  ZeroFlags,       ///< flags for infinities and NaNs in them, and
  ZeroAnswer,      ///< whether a flag is set.
  ZeroBackup,      ///< Made with the optimizer of a part on the device.
  ZeroJoined,      ///< With qwZ: the rank's parts of a gather in one piece, and
  ZeroHalf,        ///< the values cast to or from fp16.
  ZeroSum,         ///< With qgZ: sums over nodes, and
  ZeroOtherSum,
  ZeroExchange,  ///< the first of `kNumExchangeTensors`, by which one gradient gets to its ranks.
};
inline constexpr int kNumUpdateTensors =
    static_cast<int>(SingleTensor::UpdateTensor10) - static_cast<int>(SingleTensor::UpdateTensor) + 1;
/// A gradient's tensors live until the next gradient has them.
inline constexpr int kNumExchangeTensors = 18;
inline constexpr int kNumSingleTensors = static_cast<int>(SingleTensor::ZeroExchange) + kNumExchangeTensors;

inline constexpr int kNumGradSums = 3;

struct MemoryIds {
  int num_parameters = 0;
  int num_units = 0;
  int num_buffers = 0;
  int num_inputs = 0;
  int num_buckets = 0;         ///< As the layout counts them.
  std::vector<int> call_base;  ///< [num_calls + 1] First number of each call's storages.
  int first = 0;               ///< The first number.
  int total = 0;               ///< One past the last.

  int of(ParameterTensor what, int parameter) const {
    return first + static_cast<int>(what) * num_parameters + parameter;
  }
  int of(UnitTensor what, int unit) const { return units_base() + static_cast<int>(what) * num_units + unit; }
  int of(SingleTensor what) const { return singles_base() + static_cast<int>(what); }
  int buffer(int index) const { return buffers_base() + index; }
  /// Two per model input, because the next batch arrives before the last one is freed; and a copy in param_dtype.
  int input(int index, int turn) const { return inputs_base() + 3 * index + turn; }
  int input_cast(int index) const { return inputs_base() + 3 * index + 2; }
  /// The sum of two gradients of a value that several calls use; several can live.
  int grad_sum(int value, int which) const { return sums_base + kNumGradSums * value + which; }

  int units_base() const { return first + kNumParameterTensors * num_parameters; }
  int singles_base() const { return units_base() + kNumUnitTensors * num_units; }
  int buffers_base() const { return singles_base() + kNumSingleTensors; }
  int inputs_base() const { return buffers_base() + num_buffers; }
  int bucket(int index) const { return buckets_base + index; }
  /// Muon's, for one matrix or (`turn` 1) for the next one.
  int muon(int tensor, int turn) const { return muon_base + kNumMuonTensors * turn + tensor; }
  int sums_base = 0;
  int buckets_base = 0;
  int muon_base = 0;  ///< After the buckets.
};

/// A storage of a call.
struct CallTensor {
  int call = -1;  ///< An index of `Model::calls`. -1 if the tensor belongs to no call.
  int storage = -1;
};
CallTensor find_call(const MemoryIds& ids, int id);

/// Numbers from `first` on for a model whose calls have `num_storages` [num_calls] tensors each.
MemoryIds number_tensors(const Model& model, const Plan& plan, const Layout& layout,
                         const std::vector<int>& num_storages, int first = 0);

}  // namespace fsdp::simulator
