#pragma once

// The inputs of a step's cross entropies: the logits, to compare them with another program's.

#include <memory>
#include <string>

namespace fsdp::executor {

class LossInputs {
 public:
  LossInputs();
  ~LossInputs();
  LossInputs(const LossInputs&) = delete;
  LossInputs& operator=(const LossInputs&) = delete;

  /// Copies the logits of every cross entropy of this process from now on.
  void listen();
  void stop();

  /// A safetensors file: loss.0, loss.1, ... in the order of the calls.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp::executor
