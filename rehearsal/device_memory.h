#pragma once

// Device memory: addresses without bytes, and the totals that decide when memory runs out.

#include <cstdint>
#include <optional>

namespace fsdp::rehearsal {

/// The driver maps device memory in pages of 2 MiB on every data-center GPU since Pascal (the result of
/// cuMemGetAllocationGranularity there).
inline constexpr uint64_t kPage = uint64_t{2} << 20;

/// `bytes` rounded up to whole pages.
uint64_t whole_pages(uint64_t bytes);

/// The pointer as a number.
inline uint64_t address_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

/// Whether a pointer lies in the window of device addresses, in use or not.
bool is_device_address(const void* pointer);

/// The device of an address; 0 for an address that was never returned.
int device_of(const void* pointer);

/// Takes whole pages of a device's memory and assigns an address; nullopt if the device has too little.
std::optional<uint64_t> take_memory(int device, uint64_t bytes);

/// Frees the memory. False for an address that take_memory did not return.
bool give_memory_back(uint64_t address);

/// An address range without memory, as expandable segments reserve it.
uint64_t reserve_addresses(int device, uint64_t bytes);

/// False for a range that was not reserved.
bool free_addresses(uint64_t address);

/// The purpose of device memory outside PyTorch's allocator.
enum class ChargedTo { Program, Nccl };

/// Takes bytes without an address. False, without a change, if the device has too little.
bool charge(int device, uint64_t bytes, ChargedTo whom);

/// Frees them.
void discharge(int device, uint64_t bytes, ChargedTo whom);

/// One device, in bytes.
struct DeviceUse {
  uint64_t total = 0;
  uint64_t used = 0;  ///< Including context and NCCL.
  uint64_t peak = 0;  ///< The highest value of `used`.
  uint64_t context = 0;
  uint64_t nccl = 0;
};

DeviceUse device_use(int device);

/// The device with the largest peak: the rank's own, if it uses only one.
DeviceUse busiest_device();

/// Sets the peak of each device to its current use.
void reset_peaks();

}  // namespace fsdp::rehearsal
