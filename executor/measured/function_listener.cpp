// PyTorch's callback is a plain function without a user argument, so all listeners share one, which is registered while
// there is any listener.
//
// Source: ATen/record_function.h, torch 2.11. Only this file includes it: the layout of its class depends on NDEBUG.

#include "executor/measured/function_listener.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <cassert>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace fsdp::executor {

namespace {

struct Registry {
  std::shared_mutex mutex;
  std::vector<const FunctionListener::Listener*> listeners;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
};

Registry& registry() {
  static Registry only;
  return only;
}

thread_local bool is_telling = false;

/// A listener's own calls are not reported.
struct Telling {
  Telling() { is_telling = true; }
  ~Telling() { is_telling = false; }
  Telling(const Telling&) = delete;
  Telling& operator=(const Telling&) = delete;
};

std::unique_ptr<at::ObserverContext> hear(const at::RecordFunction& call) {
  if (is_telling) return nullptr;
  CalledFunction called{.name = call.name(), .operator_name = {}, .arguments = call.inputs()};
  if (const auto name = call.operator_name()) called.operator_name = *name;
  const std::shared_lock lock(registry().mutex);
  const Telling telling;
  for (const FunctionListener::Listener* listener : registry().listeners) (*listener)(called);
  return nullptr;
}

}  // namespace

FunctionListener::FunctionListener(Listener listener) : listener_(std::move(listener)) {
  const std::unique_lock lock(registry().mutex);
  registry().listeners.push_back(&listener_);
  if (registry().handle != at::INVALID_CALLBACK_HANDLE) return;
  registry().handle =
      at::addGlobalCallback(at::RecordFunctionCallback(&hear).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

FunctionListener::~FunctionListener() {
  const std::unique_lock lock(registry().mutex);
  std::erase(registry().listeners, &listener_);
  if (!registry().listeners.empty()) return;
  at::removeCallback(std::exchange(registry().handle, at::INVALID_CALLBACK_HANDLE));
}

namespace {

// One at a time: a calibration has only one.
const NodeListener::Listener*& node_listener() {
  static const NodeListener::Listener* only = nullptr;
  return only;
}

std::unique_ptr<at::ObserverContext> node_begins(const at::RecordFunction& /*node*/) {
  return nullptr;
}

void node_ended(const at::RecordFunction& node, at::ObserverContext* /*context*/) {
  if (node_listener() != nullptr) (*node_listener())(node.seqNr());
}

}  // namespace

struct NodeListener::Callback {
  Listener listener;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
};

NodeListener::NodeListener(Listener listener) : callback_(std::make_unique<Callback>()) {
  assert(node_listener() == nullptr);
  callback_->listener = std::move(listener);
  node_listener() = &callback_->listener;
  callback_->handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&node_begins, &node_ended).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

NodeListener::~NodeListener() {
  at::removeCallback(callback_->handle);
  node_listener() = nullptr;
}

std::int64_t next_node() {
  return static_cast<std::int64_t>(at::sequence_number::peek());
}

}  // namespace fsdp::executor
