// Requests to a store over the network wait forever if the link is lost, or if something other than a store answers at
// its port. So they run on a separate thread, which we abandon if it is late.

#include "executor/network/store.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "executor/network/local_address.h"

namespace fsdp::executor {

namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// Bytes of a run's name in the keys; engines use shorter ones.
constexpr std::size_t kLongestRunId = 128;

MeetingPlace at_address(const Launch& launch, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.master_port);
  options.isServer = launch.rank == 0 && !launch.agent_has_store;
  options.numWorkers = launch.world_size;
  options.waitWorkers = false;
  options.timeout = timeout;
  if (options.isServer) {
    const Result<int> socket = listen_at(launch.master_address, launch.master_port);
    if (!socket) throw CollectiveFailure(socket.error().front().what);
    options.masterListenFd = *socket;
  }
  try {
    MeetingPlace place{c10::make_intrusive<c10d::TCPStore>(launch.master_address, options), nullptr};
    if (options.isServer) {
      place.door = std::make_unique<StoreDoor>(*options.masterListenFd, room_for_meeting(launch.world_size));
    }
    return place;
  } catch (const CollectiveFailure&) {
    throw;
  } catch (const std::exception&) {
    if (options.isServer) throw;
    throw CollectiveFailure(why_unreached(launch.master_address, launch.master_port));
  }
}

MeetingPlace at_address_in_time(const Launch& launch, std::chrono::milliseconds timeout) {
  static constexpr std::chrono::milliseconds kForItsOwnWords{500};
  const auto promise = std::make_shared<std::promise<MeetingPlace>>();
  std::future<MeetingPlace> place = promise->get_future();
  std::thread([promise, launch, timeout] {
    try {
      promise->set_value(at_address(launch, timeout));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (place.wait_for(timeout + kForItsOwnWords) == std::future_status::ready) return place.get();
  throw CollectiveFailure(why_unreached(launch.master_address, launch.master_port));
}

/// Every rank joins once. A second one belongs to another run, or is a stranger.
void claim_rank(c10d::Store& store, const Launch& launch) {
  if (store.add(fmt::format("here/{}", launch.rank), 1) == 1) return;
  const std::string place = launch.store_file.empty()
                                ? fmt::format("at {} port {}", launch.master_address, launch.master_port)
                                : "in " + launch.store_file;
  throw CollectiveFailure(fmt::format("rank {} of a run is {} already. Give each run a {} of its own", launch.rank,
                                      place, launch.store_file.empty() ? "MASTER_PORT" : "FSDP_EXEC_STORE_FILE"));
}

}  // namespace

std::string without_place(std::string_view text) {
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

MeetingPlace make_store(const Launch& launch, std::chrono::milliseconds timeout) {
  MeetingPlace place;
  if (!launch.store_file.empty()) {
    place.store = c10::make_intrusive<c10d::FileStore>(launch.store_file, launch.world_size);
  } else {
    place = at_address_in_time(launch, timeout);
  }
  place.store->setTimeout(timeout);
  place.store = c10::make_intrusive<c10d::PrefixStore>(
      fmt::format("fsdp-exec/{}/{}", launch.run_id.substr(0, kLongestRunId), launch.restart), place.store);
  claim_rank(*place.store, launch);
  return place;
}

// When one rank fails, the connections of the others break or time out within the same second. Rank 0 may serve the
// store, so it waits longest before it exits. If rank 0's store does not answer, rank 0 is lost.
std::vector<int> silent_ranks(const StorePointer& store, const Launch& launch) {
  static constexpr std::chrono::milliseconds kForOthers{2000};
  static constexpr std::chrono::milliseconds kBetweenLooks{50};
  struct Silent {
    std::mutex mutex;
    std::set<int> ranks;
    bool is_known = false;
  };
  const auto silent = std::make_shared<Silent>();
  for (int rank = 0; rank < launch.world_size; ++rank) silent->ranks.insert(rank);
  const auto key = [](int rank) { return fmt::format("failed/{}", rank); };
  std::thread([silent, key, store, own = launch.rank, left = silent->ranks]() mutable {
    try {
      store->set(key(own), std::string("yes"));
      for (; !left.empty(); std::this_thread::sleep_for(kBetweenLooks)) {
        std::erase_if(left, [&](int rank) { return store->check({key(rank)}); });
        const std::lock_guard lock(silent->mutex);
        silent->ranks = left;
        silent->is_known = true;
      }
    } catch (const std::exception&) {
      // The store is gone, and with it rank 0 or the engine's agent, which print their own failure.
    }
  }).detach();
  const auto until = std::chrono::steady_clock::now() + (launch.rank == 0 ? 2 * kForOthers : kForOthers);
  for (;; std::this_thread::sleep_for(kBetweenLooks)) {
    const std::lock_guard lock(silent->mutex);
    if (!silent->ranks.empty() && std::chrono::steady_clock::now() < until) continue;
    if (silent->is_known) return {silent->ranks.begin(), silent->ranks.end()};
    const bool is_of_rank_0 = launch.store_file.empty() && !launch.agent_has_store && launch.rank != 0;
    return is_of_rank_0 ? std::vector<int>{0} : std::vector<int>();
  }
}

}  // namespace fsdp::executor
