#pragma once

// The recorded allocations, frees and work of a block's run. The block of a captured model has this in place of rules
// for its ops (docs/file_formats.md, "Captured models").

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"

namespace fsdp {

/// One event of a block's run.
struct RecordedEvent {
  enum class Kind : std::uint8_t {
    Alloc,          ///< Allocates storage `index` with `value` bytes.
    Free,           ///< Frees it.
    ParamGrad,      ///< The gradient of block parameter `index` is made, of `value` bytes,
    AddGrad,        ///< and reaches the parameter.
    ReleaseInput,   ///< The call is done with block input `index`.
    ReleaseOutput,  ///< The call is done with its own output in storage `index`.
    EmitGrad,       ///< Storage `index` is a gradient of block input `value`, which owns it from here on.
    ReleaseGrad,    ///< The gradient of block output `index` has been used.
    DropGrad,       ///< Frees the gradient of block input `index` that an earlier backward emitted.
    ForwardGrad,    ///< The gradient of block output `index` is also that of block input `value`.
    Hold,           ///< Storage `index` lives until the end of the backward,
    HoldInput,      ///< or block input `index`.
    ShareGrad,      ///< Storage `index`, which is emitted next, is still used here,
    UnshareGrad,    ///< and no longer.
    Carry,          ///< Memory that a variable of the script carries into the next step: `value` bytes from the end of
                    ///< the backward on, as storage `index`.
    DropCarried,    ///< Frees the memory of the `index`th Carry of the previous step.
    Workspace,      ///< cuBLAS requests its workspace; cuBLASLt if `index` is 1.
  };
  Kind kind = Kind::Alloc;
  bool is_view = false;  ///< For ParamGrad, EmitGrad and ForwardGrad: autograd does not add to it in place.
  std::int32_t index = 0;
  std::int64_t value = 0;

  bool operator==(const RecordedEvent&) const = default;
};

/// The location of an output of the block.
struct RecordedOutput {
  enum class Kind : std::uint8_t { Storage, Input, Parameter };
  Kind kind = Kind::Storage;
  int index = 0;           ///< Index of the storage, block input or block parameter.
  std::int64_t bytes = 0;  ///< Size of the value, which may be a part of its storage.
  bool kept = false;       ///< The call itself references it until a ReleaseOutput.

  bool operator==(const RecordedOutput&) const = default;
};

/// Work of one op on the device.
struct RecordedWork {
  struct Part {
    double gemm_flops = 0;
    double convolution_flops = 0;
    double attention_flops = 0;
    double bytes = 0;  ///< Read and written by the other kernels.
    int num_kernels = 0;

    bool operator==(const Part&) const = default;
  };
  Part forward;
  Part backward;
  std::optional<Dtype> arithmetic;  ///< Dtype of the FLOPs; `nullopt` if it is that of the activations.

  bool operator==(const RecordedWork&) const = default;
};

/// One run of a block, forward and backward, in one precision.
struct RecordedTape {
  Dtype dtype = Dtype::BFloat16;  ///< Dtype of the activations.
  bool checkpointed = false;
  std::vector<int> storage_op;                       ///< [num storages] The op that makes it.
  std::vector<std::vector<RecordedEvent>> forward;   ///< [num ops]
  std::vector<RecordedEvent> recompute;              ///< Before the backward; empty unless checkpointed.
  std::vector<std::vector<RecordedEvent>> backward;  ///< [num ops] Played from the last op to the first.
  std::vector<RecordedOutput> outputs;               ///< [num outputs]
  std::vector<RecordedWork> work;                    ///< [num ops]
  std::vector<bool> recomputed;                      ///< [num ops] Run again before the backward.
  std::int64_t largest_convolution = 0;              ///< Bytes of input, weight and output of it; 0 without one.

  bool operator==(const RecordedTape&) const = default;
};

/// The recordings of a block.
struct Recording {
  std::vector<std::string> op_names;  ///< [num ops] "aten::mm".
  std::vector<RecordedTape> tapes;    ///< At most one for each precision, checkpointed or not.

  /// `nullptr` if there is none.
  const RecordedTape* find(Dtype dtype, bool checkpointed) const {
    for (const RecordedTape& tape : tapes) {
      if (tape.dtype == dtype && tape.checkpointed == checkpointed) return &tape;
    }
    return nullptr;
  }

  bool operator==(const Recording&) const = default;
};

}  // namespace fsdp
