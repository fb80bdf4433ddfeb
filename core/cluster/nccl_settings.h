#pragma once

// NCCL's settings on a cluster: its version, and the choices that NCCL_ALGO and NCCL_PROTO leave.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fsdp {

enum class NcclAlgorithm : std::uint8_t { Tree, Ring, CollNetDirect, CollNetChain, Nvls, NvlsTree, Pat };
inline constexpr int kNumNcclAlgorithms = 7;

enum class NcclProtocol : std::uint8_t { LL, LL128, Simple };
inline constexpr int kNumNcclProtocols = 3;

std::string_view name_of(NcclAlgorithm algorithm);  ///< As in NCCL_ALGO: "NVLSTree".
std::string_view name_of(NcclProtocol protocol);    ///< "LL128".

/// The settings of a user or a cluster file. Empty texts mean NCCL's defaults.
struct NcclSettings {
  std::string version = {};     ///< "2.27.5". Defaults to the newest known.
  std::string algorithms = {};  ///< NCCL_ALGO: "Ring,Tree", "^NVLS", "allreduce:Tree;allgather:Ring".
  std::string protocols = {};   ///< NCCL_PROTO, in the same way.

  bool operator==(const NcclSettings&) const = default;
};

/// The collectives whose algorithms NCCL chooses, in the numbering of `NcclRules`.
inline constexpr int kNumNcclFunctions = 3;
inline constexpr std::array<std::string_view, kNumNcclFunctions> kNcclFunctions = {"allgather", "reducescatter",
                                                                                   "allreduce"};

/// The meaning of the settings.
struct NcclRules {
  int minor_version = 30;  ///< 27 of NCCL 2.27.5.
  /// [function] Bit a is set if algorithm (protocol) a may be chosen.
  std::array<std::uint8_t, kNumNcclFunctions> algorithms = {0xff, 0xff, 0xff};
  std::array<std::uint8_t, kNumNcclFunctions> protocols = {0xff, 0xff, 0xff};

  bool allows(int function, NcclAlgorithm algorithm, NcclProtocol protocol) const {
    const auto f = static_cast<std::size_t>(function);
    return ((algorithms[f] >> static_cast<int>(algorithm)) & 1) != 0 &&
           ((protocols[f] >> static_cast<int>(protocol)) & 1) != 0;
  }
  bool operator==(const NcclRules&) const = default;
};

/// Errors, each under the name of its option (`--nccl-version`, `--nccl-algo`, `--nccl-proto`): an unknown version; an
/// unknown name; settings that leave a collective no choice that every machine has, so that NCCL itself fails when the
/// collective is called. (Rings in LL or Simple work everywhere, and trees of all-reduces.)
Result<NcclRules> nccl_rules(const NcclSettings& settings);

}  // namespace fsdp
