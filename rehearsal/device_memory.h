#pragma once

// Device memory: addresses without bytes, and the sums that decide when it is used up.

#include <cstdint>
#include <optional>

namespace fsdp::rehearsal {

/// The driver maps device memory in pages of 2 MiB, on every data-center GPU since Pascal (what
/// cuMemGetAllocationGranularity answers there).
inline constexpr uint64_t kPage = uint64_t{2} << 20;

/// `bytes` rounded up to whole pages.
uint64_t whole_pages(uint64_t bytes);

/// The number that a pointer is.
inline uint64_t address_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

/// Whether a pointer lies among the device addresses, given out or not.
bool is_device_address(const void* pointer);

/// The device that an address was given out for; 0 for one that never was.
int device_of(const void* pointer);

/// Takes memory from a device and gives it an address; nothing when the device has too little. Whole pages.
std::optional<uint64_t> take_memory(int device, uint64_t bytes);

/// Gives it back. False for an address that take_memory did not give out.
bool give_memory_back(uint64_t address);

/// An address range without memory, as expandable segments reserve it.
uint64_t reserve_addresses(int device, uint64_t bytes);

/// False for a range that was not reserved.
bool free_addresses(uint64_t address);

/// The purpose of device memory, beside PyTorch's own.
enum class ChargedTo { Program, Nccl };

/// Takes bytes without an address; false, and nothing taken, when the device has too little.
bool charge(int device, uint64_t bytes, ChargedTo whom);

/// Gives them back.
void discharge(int device, uint64_t bytes, ChargedTo whom);

/// One device, in bytes.
struct DeviceUse {
  uint64_t total = 0;
  uint64_t used = 0;  ///< With context and NCCL.
  uint64_t peak = 0;  ///< The most that was used at a time.
  uint64_t context = 0;
  uint64_t nccl = 0;
};

DeviceUse device_use(int device);

/// The device with the largest peak; a rank's own, as long as it does not spread.
DeviceUse busiest_device();

/// The peak of each device becomes what it uses now.
void reset_peaks();

}  // namespace fsdp::rehearsal
