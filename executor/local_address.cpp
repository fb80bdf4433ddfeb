// A datagram socket that is connected sends nothing, but has chosen its route, and with it its own address.

#include "executor/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace fsdp::executor {

namespace {

constexpr const char* kAnyPort = "9";

std::string own_address_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXHOST> text{};
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(socket, generic, &size) != 0) return {};
  if (getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

}  // namespace

Result<std::string> local_address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), kAnyPort, &wanted, &found);
  if (code != 0) {
    return failure("MASTER_ADDR", fmt::format("\"{}\" is no known host: {}.", host, gai_strerror(code)), "");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string reason = "it has no address";
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    const bool is_reached = connect(socket, each->ai_addr, each->ai_addrlen) == 0;
    if (!is_reached) reason = std::strerror(errno);
    const std::string own = is_reached ? own_address_of(socket) : std::string();
    close(socket);
    if (!own.empty()) return own;
  }
  return failure("MASTER_ADDR", fmt::format("There is no way to {}: {}.", host, reason), "");
}

}  // namespace fsdp::executor
