// A connected datagram socket sends nothing, but has chosen its route and its own address. Binding a socket to an
// address shows whether it is this machine's.

#include "executor/network/local_address.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

namespace fsdp::executor {

namespace {

constexpr const char* kAnyPort = "9";
constexpr std::chrono::milliseconds kForAnAnswer{2000};
constexpr int kBacklog = 2048;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Error: getaddrinfo's code.
std::pair<Addresses, int> addresses_of(const char* host, const std::string& port, int type, int flags = 0) {
  addrinfo wanted{};
  wanted.ai_socktype = type;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host, port.c_str(), &wanted, &found);
  return {Addresses(code == 0 ? found : nullptr, &freeaddrinfo), code};
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// A listening socket; -1 with errno on failure.
int listening(const addrinfo& at) {
  const int socket = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int yes = 1;
  const int no = 0;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (at.ai_family == AF_INET6) setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  if (bind(socket, at.ai_addr, at.ai_addrlen) == 0 && listen(socket, kBacklog) == 0) return socket;
  const int reason = errno;
  close(socket);
  errno = reason;
  return -1;
}

/// The result of connecting: 0, or errno.
int tried(const addrinfo& at) {
  const int socket = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return errno;
  int reason = connect(socket, at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
  if (reason == EINPROGRESS) {
    pollfd wanted{.fd = socket, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof(reason);
    if (poll(&wanted, 1, static_cast<int>(kForAnAnswer.count())) <= 0) {
      reason = ETIMEDOUT;
    } else {
      getsockopt(socket, SOL_SOCKET, SO_ERROR, &reason, &size);
    }
  }
  close(socket);
  return reason;
}

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
    return failure("MASTER_ADDR", fmt::format("The host \"{}\" is unknown: {}.", host, gai_strerror(code)), "");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string reason = "it has no address";
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) {
      reason = std::strerror(errno);
      continue;
    }
    const bool is_reached = connect(socket, each->ai_addr, each->ai_addrlen) == 0;
    if (!is_reached) reason = std::strerror(errno);
    const std::string own = is_reached ? own_address_of(socket) : std::string();
    close(socket);
    if (!own.empty()) return own;
  }
  return failure("MASTER_ADDR", fmt::format("{} cannot be reached: {}.", host, reason), "");
}

std::string no_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format("this process may open {} files, and has no more: raise ulimit -n", limit.rlim_cur);
}

std::vector<std::string> network_interfaces() {
  ifaddrs* found = nullptr;
  std::vector<std::string> names;
  if (getifaddrs(&found) != 0) return names;
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    const bool has_address =
        each->ifa_addr != nullptr && (each->ifa_addr->sa_family == AF_INET || each->ifa_addr->sa_family == AF_INET6);
    if (has_address && std::find(names.begin(), names.end(), each->ifa_name) == names.end()) {
      names.emplace_back(each->ifa_name);
    }
  }
  freeifaddrs(found);
  return names;
}

Result<int> listen_at(const std::string& host, int port) {
  const std::string service = std::to_string(port);
  const bool is_number = addresses_of(host.c_str(), service, SOCK_STREAM, AI_NUMERICHOST).second == 0;
  const auto own = addresses_of(host.c_str(), service, SOCK_STREAM);
  const auto all = addresses_of(nullptr, service, SOCK_STREAM, AI_PASSIVE);
  int reason = EADDRNOTAVAIL;
  const auto try_those = [&](const Addresses& addresses, bool with_loopback) {
    for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
      if (!with_loopback && is_loopback(each->ai_addr)) continue;
      const int socket = listening(*each);
      if (socket >= 0) return socket;
      reason = errno;
      if (reason != EADDRNOTAVAIL && reason != EAFNOSUPPORT) break;
    }
    return -1;
  };
  int socket = try_those(own.first, is_number || host == "localhost");
  const bool is_elsewhere = reason == EADDRNOTAVAIL || reason == EAFNOSUPPORT;
  if (socket < 0 && is_elsewhere) socket = try_those(all.first, true);
  if (socket >= 0) return socket;
  if (reason == EMFILE || reason == ENFILE) return failure("", no_descriptors());
  if (reason == EADDRINUSE) {
    return failure("", fmt::format("port {} of this machine is taken. Set MASTER_PORT to another, on all ranks", port));
  }
  return failure("", fmt::format("port {} of {} cannot be opened: {}", port, host, std::strerror(reason)));
}

std::string why_unreached(const std::string& host, int port) {
  const auto [addresses, code] = addresses_of(host.c_str(), std::to_string(port), SOCK_STREAM);
  if (code != 0) return fmt::format("the host of MASTER_ADDR, \"{}\", is unknown: {}", host, gai_strerror(code));
  int reason = EADDRNOTAVAIL;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const int now = tried(*each);
    if (now == 0) {
      return fmt::format(
          "the process at {} port {} is not the store of rank 0. Is the port taken? Set MASTER_PORT to another, on all "
          "ranks",
          host, port);
    }
    if (reason != ECONNREFUSED) reason = now;
  }
  if (reason == EMFILE || reason == ENFILE) return no_descriptors();
  if (reason == ECONNREFUSED) {
    return fmt::format(
        "{} is there, and nothing listens at its port {}: rank 0 has not started, has ended, or trains with "
        "the ranks that it has met",
        host, port);
  }
  return fmt::format("no host answers at {} ({}). Is MASTER_ADDR the address of rank 0?", host, std::strerror(reason));
}

}  // namespace fsdp::executor
