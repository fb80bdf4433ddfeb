#pragma once

// The store of c10d in which the ranks of a run meet.

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "executor/network/collectives.h"
#include "executor/network/store_door.h"

namespace c10d {
class Store;
}

namespace fsdp::executor {

/// A sentence of Gloo without the place in its source: "[/path/pair.cc:538] Read error".
std::string without_place(std::string_view text);

/// Turns everything that Gloo and c10d throw into one kind of error with its relevant sentence.
template <class Function>
auto guarded(Function&& function) {
  try {
    return function();
  } catch (const CollectiveFailure&) {
    throw;
  } catch (const c10::Error& error) {
    throw CollectiveFailure(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw CollectiveFailure(without_place(error.what()));
  }
}

/// The place where the ranks of a run meet. The door is destroyed before the store.
struct MeetingPlace {
  c10::intrusive_ptr<c10d::Store> store;
  std::unique_ptr<StoreDoor> door;  ///< Null if this process does not serve the store.
};

/// The store of a run, in a file or at an address. Throws CollectiveFailure if it is not there within `timeout`, or if
/// this rank has met there already.
MeetingPlace make_store(const Launch& launch, std::chrono::milliseconds timeout);

/// GlooNetwork::silent_ranks.
std::vector<int> silent_ranks(const c10::intrusive_ptr<c10d::Store>& store, const Launch& launch);

}  // namespace fsdp::executor
