#pragma once

// The facts of a card, in one place for all interfaces that return them.

#include <algorithm>
#include <cstddef>

#include "rehearsal/options.h"

namespace fsdp::rehearsal {

inline constexpr int kWarp = 32;
inline constexpr int kMostThreadsPerBlock = 1024;
inline constexpr int kMostBlockZ = 64;
inline constexpr int kMostGridX = 2147483647;
inline constexpr int kMostGridYZ = 65535;
inline constexpr int kRegisters = 65536;              ///< Registers of a block and of a multiprocessor, since compute
                                                      ///< capability 5.0.
inline constexpr int kSharedPerBlock = 48 << 10;      ///< Without opting in to more.
inline constexpr int kReservedSharedPerBlock = 1024;  ///< Used by the driver.
inline constexpr int kConstantBytes = 64 << 10;

/// The most blocks of a multiprocessor.
int most_blocks_per_sm(int compute_capability);

/// The card's number in its node: a process may see only the later cards of a node.
inline int number_in_node(int device) {
  return options().first_device + device;
}

/// Writes the facts into a cudaDeviceProp of any version: the fields that PyTorch and its libraries read. The others,
/// including everything about textures and surfaces, become 0.
template <class Properties>
void describe_card(Properties& p, int device) {
  const Card& card = options().card;
  p = Properties{};
  std::copy_n(card.name.c_str(), std::min(card.name.size(), sizeof(p.name) - 1), p.name);
  p.uuid.bytes[0] = static_cast<char>(number_in_node(device) + 1);
  p.totalGlobalMem = card.total_bytes;
  p.sharedMemPerBlock = kSharedPerBlock;
  p.regsPerBlock = p.regsPerMultiprocessor = kRegisters;
  p.warpSize = kWarp;
  p.maxThreadsPerBlock = kMostThreadsPerBlock;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = kMostThreadsPerBlock;
  p.maxThreadsDim[2] = kMostBlockZ;
  p.maxGridSize[0] = kMostGridX;
  p.maxGridSize[1] = p.maxGridSize[2] = kMostGridYZ;
  p.totalConstMem = kConstantBytes;
  p.major = card.major();
  p.minor = card.minor();
  p.textureAlignment = 512;
  p.multiProcessorCount = card.sms;
  p.memoryBusWidth = card.bus_bits;
  p.l2CacheSize = card.l2_bytes;
  p.maxThreadsPerMultiProcessor = card.threads_per_sm;
  p.sharedMemPerMultiprocessor = static_cast<size_t>(card.shared_per_sm_bytes);
  p.sharedMemPerBlockOptin = static_cast<size_t>(card.shared_per_block_bytes);
  p.maxBlocksPerMultiProcessor = most_blocks_per_sm(card.compute_capability);
  p.reservedSharedMemPerBlock = kReservedSharedPerBlock;
  p.pciBusID = number_in_node(device) + 1;
  p.unifiedAddressing = p.canMapHostMemory = p.concurrentKernels = p.cooperativeLaunch = 1;
  p.managedMemory = p.asyncEngineCount = p.streamPrioritiesSupported = 1;
}

}  // namespace fsdp::rehearsal
