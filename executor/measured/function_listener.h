#pragma once

// Hears of every function of PyTorch that this process calls, with its arguments.

#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>

#include <functional>
#include <optional>
#include <string_view>

namespace fsdp::executor {

/// A function that is about to run.
struct CalledFunction {
  std::string_view name;                           ///< "aten::mm".
  std::optional<c10::OperatorName> operator_name;  ///< With its overload; not every function has one.
  c10::ArrayRef<const c10::IValue> arguments;
};

/// Calls its listener, on whatever thread, from its construction to its destruction.
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

}  // namespace fsdp::executor
