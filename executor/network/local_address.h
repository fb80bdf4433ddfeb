#pragma once

// The address at which other ranks reach this machine, and whether it reaches another one.

#include <string>
#include <vector>

#include "core/base/result.h"

namespace fsdp::executor {

/// The address from which this machine reaches `host` (a name or an address): that of the network on which the ranks
/// meet, even if the machine has several, or its own name means the loopback. Error: `host` is unknown or unreachable.
Result<std::string> local_address_towards(const std::string& host);

/// Names of the interfaces that have an address.
std::vector<std::string> network_interfaces();

/// A socket that listens at `port`, only at the address of `host`, out of reach of other networks. It listens at all
/// addresses if `host` is not an address of this machine (a forwarded port), or is a name that means the loopback here
/// and perhaps another address elsewhere. Error: the port is in use, or there are no descriptors.
Result<int> listen_at(const std::string& host, int port);

/// Why no file or connection can be opened any more: a sentence without its full stop.
std::string no_descriptors();

/// Why no process of this run answers at `port` of `host`: a sentence without its full stop, found by another attempt.
std::string why_unreached(const std::string& host, int port);

}  // namespace fsdp::executor
