#include "rehearsal/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "rehearsal/options.h"
#include "rehearsal/stub_gpu.h"

// A window of addresses is mapped without any access rights. So a host that reads or writes one of them faults at once,
// as it would on a machine with a GPU, and no other memory of the process can lie there. Addresses rise (or fall)
// through the window and are never reused. The driver promises no order of addresses, but PyTorch's allocator takes the
// lowest free block among equal ones, so the order can change `reserved` a little; docs/rehearsal_stub_gpu.md has the
// amount.
//
// Not modeled: cudaMalloc puts several requests of less than a page into one page. PyTorch asks for whole pages.

namespace fsdp::rehearsal {
namespace {

constexpr uint64_t kWindow = 0x100000000000;       // 16 TiB: above the usual heap, below the usual libraries
constexpr uint64_t kWindowBytes = 0x200000000000;  // 32 TiB: a full card for each of a million steps

struct Range {
  uint64_t bytes;
  int device;
  bool has_memory;  // false if reserve_addresses made it
};

struct Memory {
  std::mutex mutex;
  uint64_t next_up = kWindow;
  uint64_t next_down = kWindow + kWindowBytes;
  std::map<uint64_t, Range> ranges;
  std::vector<DeviceUse> devices;

  Memory() {
    void* const window = reinterpret_cast<void*>(kWindow);
    const void* const got =
        mmap(window, kWindowBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != window) {
      std::fprintf(stderr,
                   "stub GPU: the addresses from %#lx on, 32 TiB, cannot be reserved. Is the address space of this "
                   "process limited (ulimit -v)?\n",
                   kWindow);
      std::_Exit(3);
    }
    DeviceUse fresh;
    fresh.total = options().card.total_bytes;
    fresh.used = fresh.peak = fresh.context = options().context_bytes;
    devices.assign(static_cast<size_t>(options().devices), fresh);
  }

  DeviceUse& of(int device) { return devices.at(static_cast<size_t>(device)); }

  bool take(int device, uint64_t bytes) {
    DeviceUse& use = of(device);
    if (bytes > use.total - std::min(use.used, use.total)) return false;
    use.used += bytes;
    use.peak = std::max(use.peak, use.used);
    return true;
  }

  uint64_t place(int device, uint64_t bytes, bool has_memory) {
    if (bytes > next_down - next_up) {
      std::fprintf(stderr, "stub GPU: 32 TiB of addresses are used up.\n");
      std::_Exit(3);
    }
    uint64_t address = next_up;
    if (options().addresses_go_down) {
      address = next_down -= bytes;
    } else {
      next_up += bytes;
    }
    ranges[address] = Range{bytes, device, has_memory};
    return address;
  }
};

Memory& memory() {
  static Memory* const instance = new Memory;  // never destroyed: static destructors still call us
  return *instance;
}

}  // namespace

uint64_t whole_pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

bool is_device_address(const void* pointer) {
  return address_of(pointer) - kWindow < kWindowBytes;
}

int device_of(const void* pointer) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto after = m.ranges.upper_bound(address_of(pointer));
  if (after == m.ranges.begin()) return 0;
  const auto& [start, range] = *std::prev(after);
  return address_of(pointer) < start + range.bytes ? range.device : 0;
}

std::optional<uint64_t> take_memory(int device, uint64_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const uint64_t pages = whole_pages(bytes);
  if (!m.take(device, pages)) return std::nullopt;
  return m.place(device, pages, true);
}

bool give_memory_back(uint64_t address) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto found = m.ranges.find(address);
  if (found == m.ranges.end() || !found->second.has_memory) return false;
  m.of(found->second.device).used -= found->second.bytes;
  m.ranges.erase(found);
  return true;
}

uint64_t reserve_addresses(int device, uint64_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return m.place(device, whole_pages(bytes), false);
}

bool free_addresses(uint64_t address) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto found = m.ranges.find(address);
  if (found == m.ranges.end() || found->second.has_memory) return false;
  m.ranges.erase(found);
  return true;
}

bool charge(int device, uint64_t bytes, ChargedTo whom) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (!m.take(device, bytes)) return false;
  if (whom == ChargedTo::Nccl) m.of(device).nccl += bytes;
  return true;
}

void discharge(int device, uint64_t bytes, ChargedTo whom) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  m.of(device).used -= bytes;
  if (whom == ChargedTo::Nccl) m.of(device).nccl -= bytes;
}

DeviceUse device_use(int device) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return m.of(device);
}

DeviceUse busiest_device() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return *std::max_element(m.devices.begin(), m.devices.end(),
                           [](const DeviceUse& a, const DeviceUse& b) { return a.peak < b.peak; });
}

void reset_peaks() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  for (DeviceUse& use : m.devices) use.peak = use.used;
}

}  // namespace fsdp::rehearsal

void stub_gpu_reset_peak() {
  fsdp::rehearsal::reset_peaks();
}
