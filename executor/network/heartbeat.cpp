// Rank r counts under its own key and reads that of rank r + 1, so that three requests a beat are enough for any number
// of ranks. Who finds its neighbor silent, or has failed itself, writes that under a key which all read. So does the
// store's own silence count: it is served by rank 0 or by the engine's agent.
//
// The thread is left behind when a request does not return (executor/network/store.cpp has the same trouble).

#include "executor/network/heartbeat.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/printable.h"

namespace fsdp::executor {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongestBeat{1000};
constexpr int kBeatsInPatience = 4;
constexpr milliseconds kForLastWords{1000};
constexpr const char* kLost = "heartbeat/lost";
constexpr std::size_t kLongestCause = 500;

std::string heartbeat_key(int rank) {
  return fmt::format("heartbeat/{}", rank);
}

/// Words of the store, which anybody may have written: one line, and nothing that a terminal would obey.
std::string cause_of(std::string words) {
  words.resize(std::min({words.size(), words.find('\n'), kLongestCause}));
  return printable(words);
}

}  // namespace

struct Heartbeat::State {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  milliseconds patience{0};

  mutable std::mutex mutex;
  std::condition_variable wake;
  bool ends = false;
  bool has_ended = false;
  std::string own_failure;
  std::string lost;
  Clock::time_point answered = Clock::now();

  // Of the thread alone.
  std::int64_t beats = 0;
  std::string heard;
  Clock::time_point heard_at = Clock::now();

  void run();
  void beat();
  void announce(const std::string& words);
  void listen();
};

void Heartbeat::State::run() {
  const milliseconds between = std::min(kLongestBeat, patience / kBeatsInPatience);
  std::unique_lock lock(mutex);
  while (!ends) {
    const std::string failure = own_failure;
    lock.unlock();
    std::string problem;
    try {
      if (failure.empty()) {
        beat();
      } else {
        announce(fmt::format("rank {} has failed: {}", rank, failure));
      }
    } catch (const std::exception&) {
      problem = "the store is gone, and with it rank 0 or the agent that serves it";
    }
    lock.lock();
    answered = Clock::now();
    if (lost.empty()) lost = problem;
    if (!failure.empty() || !problem.empty()) break;
    wake.wait_for(lock, between, [this] { return ends || !own_failure.empty(); });
  }
  has_ended = true;
  wake.notify_all();
}

void Heartbeat::State::beat() {
  store->set(heartbeat_key(rank), fmt::format("{}", ++beats));
  if (world_size > 1) listen();
  if (!store->check({kLost})) return;
  const std::string words = cause_of(store->get_to_str(kLost));
  const std::lock_guard lock(mutex);
  if (lost.empty()) lost = words;
}

void Heartbeat::State::listen() {
  const int other = (rank + 1) % world_size;
  const std::string now =
      store->check({heartbeat_key(other)}) ? store->get_to_str(heartbeat_key(other)) : std::string();
  if (now != heard) {
    heard = now;
    heard_at = Clock::now();
  } else if (Clock::now() - heard_at > patience) {
    announce(fmt::format("rank {} has given no sign of life for {:.1f} s", other,
                         std::chrono::duration<double>(patience).count()));
  }
}

// The first cause stays: the failures of the others follow from it.
void Heartbeat::State::announce(const std::string& words) {
  if (!store->check({kLost})) store->set(kLost, words);
}

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, milliseconds patience)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->rank = rank;
  state_->world_size = world_size;
  state_->patience = patience;
  std::thread([state = state_] { state->run(); }).detach();
}

Heartbeat::~Heartbeat() {
  end();
}

void Heartbeat::end() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->wake.notify_all();
  state_->wake.wait_for(lock, kForLastWords, [this] { return state_->has_ended; });
}

std::string Heartbeat::lost() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->lost.empty() || state_->has_ended) return state_->lost;
  const Clock::duration silent = Clock::now() - state_->answered;
  // A beat and what it waits for are part of it.
  if (silent < state_->patience + 2 * kLongestBeat) return {};
  return fmt::format("the store, which rank 0 or an agent serves, has not answered for {:.1f} s",
                     std::chrono::duration<double>(silent).count());
}

void Heartbeat::say_failed(const std::string& why) {
  std::unique_lock lock(state_->mutex);
  state_->own_failure = why;
  state_->wake.notify_all();
  state_->wake.wait_for(lock, kForLastWords, [this] { return state_->has_ended; });
}

}  // namespace fsdp::executor
