#pragma once

// Observes every function of PyTorch that this process calls, with its arguments, and every node of autograd.

#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace fsdp::executor {

/// A function that is about to run.
struct CalledFunction {
  std::string_view name;                           ///< "aten::mm".
  std::optional<c10::OperatorName> operator_name;  ///< With its overload; not every function has one.
  c10::ArrayRef<const c10::IValue> arguments;
};

/// Calls its listener, on any thread, from its construction to its destruction.
class FunctionListener {
 public:
  using Listener = std::function<void(const CalledFunction&)>;

  explicit FunctionListener(Listener listener);
  ~FunctionListener();
  FunctionListener(const FunctionListener&) = delete;
  FunctionListener& operator=(const FunctionListener&) = delete;

 private:
  Listener listener_;
};

/// Calls its listener after a node of a backward has run, on the thread of the backward, with the number that the
/// forward assigned (`next_node`).
class NodeListener {
 public:
  using Listener = std::function<void(std::int64_t node)>;

  explicit NodeListener(Listener listener);
  ~NodeListener();
  NodeListener(const NodeListener&) = delete;
  NodeListener& operator=(const NodeListener&) = delete;

 private:
  struct Callback;
  std::unique_ptr<Callback> callback_;
};

/// The number of the next autograd node that this thread makes.
std::int64_t next_node();

}  // namespace fsdp::executor
