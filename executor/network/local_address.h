#pragma once

// Which address of this machine the other ranks reach it by, and whether another one is reached.

#include <string>
#include <vector>

#include "core/base/result.h"

namespace fsdp::executor {

/// The address from which this machine reaches `host` (a name or an address): that of the network on which the ranks
/// meet, also where the machine has several, or where its own name means the loopback. Error: `host` is not known, or
/// there is no way to it.
Result<std::string> local_address_towards(const std::string& host);

/// Names of the interfaces that have an address.
std::vector<std::string> network_interfaces();

/// A socket that listens at `port` of this machine, at the address that `host` means and at no other: who comes from
/// another network finds nothing. At all addresses where `host` is none of this machine's (a forwarded port), or where
/// it is a name that means the loopback here, and may mean another address elsewhere. Error: the port is taken, or
/// there are no descriptors.
Result<int> listen_at(const std::string& host, int port);

/// Why no file or connection can be opened any more: a sentence without its full stop.
std::string no_descriptors();

/// Why nothing of ours answers at `port` of `host`: a sentence without its full stop, found by trying once more.
std::string why_unreached(const std::string& host, int port);

}  // namespace fsdp::executor
