#include "rehearsal/known_contents.h"

#include <atomic>
#include <map>
#include <mutex>

// DDP and FSDP1 compare shapes and bucket numbers between ranks, DTensor broadcasts seeds, and object collectives send
// their sizes: small numbers that go to the card and come back without a kernel in between. They are stored as pieces,
// address to bytes, that never overlap; neighbors are joined, so that contents sent in parts can be read at once.

namespace fsdp::rehearsal {
namespace {

struct Known {
  std::mutex mutex;
  std::map<uint64_t, std::string> pieces;
  std::atomic<bool> any{false};  // a kernel launch stops here if there is nothing to forget
};

Known& known() {
  static Known* const instance = new Known;  // never destroyed: static destructors still call us
  return *instance;
}

/// Cuts [start, end) out of the pieces. The caller holds the mutex.
void cut_out(std::map<uint64_t, std::string>& pieces, uint64_t start, uint64_t end) {
  auto piece = pieces.upper_bound(start);
  if (piece != pieces.begin()) --piece;
  while (piece != pieces.end() && piece->first < end) {
    const uint64_t first = piece->first;
    const uint64_t last = first + piece->second.size();
    if (last <= start) {
      ++piece;
      continue;
    }
    const std::string bytes = std::move(piece->second);
    piece = pieces.erase(piece);
    if (first < start) pieces.emplace(first, bytes.substr(0, start - first));
    if (last > end) pieces.emplace(end, bytes.substr(end - first));
  }
}

/// Joins a piece with the one that starts where it ends.
void join(std::map<uint64_t, std::string>& pieces, std::map<uint64_t, std::string>::iterator piece) {
  const auto next = std::next(piece);
  if (next == pieces.end() || piece->first + piece->second.size() != next->first ||
      piece->second.size() + next->second.size() > kLargestKnown) {
    return;
  }
  piece->second += next->second;
  pieces.erase(next);
}

}  // namespace

void remember(uint64_t address, const void* bytes, size_t size) {
  if (size == 0) return;
  if (size > kLargestKnown) return forget(address, size);
  Known& k = known();
  const std::lock_guard lock(k.mutex);
  cut_out(k.pieces, address, address + size);
  const auto piece = k.pieces.emplace(address, std::string(static_cast<const char*>(bytes), size)).first;
  join(k.pieces, piece);
  if (piece != k.pieces.begin()) join(k.pieces, std::prev(piece));
  k.any = true;
}

void forget(uint64_t address, size_t size) {
  Known& k = known();
  if (!k.any) return;
  const std::lock_guard lock(k.mutex);
  cut_out(k.pieces, address, address + size);
}

void forget_everything() {
  Known& k = known();
  if (!k.any) return;
  const std::lock_guard lock(k.mutex);
  k.pieces.clear();
  k.any = false;
}

std::optional<std::string> recall(uint64_t address, size_t size) {
  Known& k = known();
  const std::lock_guard lock(k.mutex);
  const auto after = k.pieces.upper_bound(address);
  if (after == k.pieces.begin()) return std::nullopt;
  const auto& [start, bytes] = *std::prev(after);
  if (address + size > start + bytes.size()) return std::nullopt;
  return bytes.substr(address - start, size);
}

}  // namespace fsdp::rehearsal
