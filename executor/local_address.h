#pragma once

// Which address of this machine the other ranks reach it by.

#include <string>

#include "core/result.h"

namespace fsdp::executor {

/// The address from which this machine reaches `host` (a name or an address): that of the network on which the ranks
/// meet, also where the machine has several, or where its own name means the loopback. Error: `host` is not known, or
/// there is no way to it.
Result<std::string> local_address_towards(const std::string& host);

}  // namespace fsdp::executor
