#pragma once

// Outputs that selective activation checkpointing keeps from a forward to its recomputation: outputs of PyTorch's calls
// below autograd, as in torch.utils.checkpoint.create_selective_checkpoint_contexts.

#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::executor {

class KeptOutputs {
 public:
  /// From now on calls return the kept outputs, in the order of the calls of each function, and compute nothing.
  void begin_recomputation() { is_giving_ = true; }
  /// Chooses the outputs that the calls from now on keep.
  enum class Wanted : std::uint8_t {
    Nothing,
    Everything,
    FusedAttention,  ///< Attention without the ops around the fused call: copies of K and V, padding.
  };
  void set_wanted(Wanted wanted) { wanted_ = wanted; }

  /// Sees the calls of this thread during its lifetime. Does nothing if it gets null.
  class Scope {
   public:
    explicit Scope(KeptOutputs* kept);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    KeptOutputs* before_;
    std::optional<c10::impl::IncludeDispatchKeyGuard> sees_calls_;
  };

  /// During its lifetime PyTorch assumes that a Python mode sees all calls, as in PyTorch itself. REQUIRES: no call
  /// makes a detached tensor, for which PyTorch would call the mode.
  class Mode {
   public:
    explicit Mode(bool is_on);
    ~Mode();
    Mode(const Mode&) = delete;
    Mode& operator=(const Mode&) = delete;

   private:
    bool is_on_;
  };

  bool is_giving() const { return is_giving_; }
  Wanted wanted() const { return wanted_; }
  /// One call of a function of PyTorch's dispatcher, by its name.
  void keep(const std::string& function, const std::vector<c10::IValue>& outputs);
  /// Throws c10::Error if there is none, or if an op has changed it in place.
  std::vector<c10::IValue> give(const std::string& function);

 private:
  struct Output {
    c10::IValue value;
    std::uint32_t version = 0;  ///< A tensor's version.
  };

  bool is_giving_ = false;
  Wanted wanted_ = Wanted::Nothing;
  std::map<std::string, std::deque<std::vector<Output>>> kept_;
};

}  // namespace fsdp::executor
