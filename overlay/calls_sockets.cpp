// Sockets that have names in the file system.
//
// The upper layer's paths are often longer than a socket's address may be (108 bytes). Then the address names the
// folder by a descriptor, which stays open, and we remember the script's name for functions that return it.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <mutex>

#include "overlay/calls.h"
#include "overlay/kernel.h"
#include "overlay/settings.h"

using namespace fsdp::overlay;

namespace {

constexpr std::size_t kBegin = offsetof(sockaddr_un, sun_path);
constexpr std::size_t kRoom = sizeof(sockaddr_un::sun_path);

struct Renamed {
  sockaddr_un real;
  sockaddr_un seen;
};

std::mutex g_lock;
std::array<Renamed, 64> g_renamed;  // The oldest is dropped.
std::size_t g_count = 0;

std::string_view path_in(const sockaddr* address, socklen_t size) {
  if (address == nullptr || size <= kBegin || address->sa_family != AF_UNIX) return {};
  const auto* local = reinterpret_cast<const sockaddr_un*>(address);
  return {local->sun_path, strnlen(local->sun_path, std::min<std::size_t>(size - kBegin, kRoom))};
}

sockaddr_un address_of(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), kRoom - 1));
  return address;
}

/// Binds or connects a socket.
int with_address(long call, int socket, const sockaddr* address, socklen_t size, bool makes) {
  const auto with = [&](const void* other, std::size_t length) {
    return static_cast<int>(answer(kernel::call(call, socket, kernel::to(other), static_cast<long>(length))));
  };
  const std::string_view given = path_in(address, size);
  // An empty path is an abstract name.
  if (!settings().active || given.empty()) return with(address, size);
  const Text path(given);
  Text real;
  const Use use = makes ? for_making(AT_FDCWD, path.c_str(), real) : for_reading(AT_FDCWD, path.c_str(), true, real);
  if (use == Use::Fails) {
    if (errno == EEXIST) errno = EADDRINUSE;
    return -1;
  }
  if (use == Use::AsIs) return with(address, size);
  if (real.size() < kRoom) {
    const sockaddr_un other = address_of(real.view());
    return with(&other, sizeof other);
  }
  const Text folder(folder_of(real.view()));
  const int file = kernel::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return errno = -file, -1;
  char name[kRoom];
  const int length = std::snprintf(name, sizeof name, "/proc/self/fd/%d/%s", file, real.c_str() + folder.size() + 1);
  if (length >= static_cast<int>(sizeof name)) return kernel::close(file), errno = ENAMETOOLONG, -1;
  const sockaddr_un other = address_of({name, static_cast<std::size_t>(length)});
  const int result = with(&other, sizeof other);
  if (!makes || result != 0) {
    kernel::close(file);
  } else {
    const std::lock_guard lock(g_lock);
    g_renamed[g_count++ % g_renamed.size()] = {other, address_of(given)};
  }
  return result;
}

/// Puts the script's name in place of the kernel's.
int seen(int result, sockaddr* address, socklen_t* size, socklen_t room) {
  if (result < 0 || !settings().active || address == nullptr || size == nullptr) return result;
  const std::string_view told = path_in(address, std::min(*size, room));
  if (told.empty()) return result;
  sockaddr_un other = address_of(without_upper(told));
  {
    const std::lock_guard lock(g_lock);
    for (const Renamed& each : g_renamed) {
      if (told == each.real.sun_path) other = each.seen;
    }
  }
  *size = static_cast<socklen_t>(kBegin + strnlen(other.sun_path, kRoom) + 1);
  std::memcpy(address, &other, std::min(*size, room));
  return result;
}

}  // namespace

FSDP_CALL int bind(int socket, const sockaddr* address, socklen_t size) {
  return with_address(SYS_bind, socket, address, size, true);
}
FSDP_CALL int connect(int socket, const sockaddr* address, socklen_t size) {
  return with_address(SYS_connect, socket, address, size, false);
}

FSDP_CALL int getsockname(int socket, sockaddr* address, socklen_t* size) {
  const socklen_t room = size == nullptr ? 0 : *size;
  const long result = kernel::call(SYS_getsockname, socket, kernel::to(address), kernel::to(size));
  return seen(static_cast<int>(answer(result)), address, size, room);
}
FSDP_CALL int getpeername(int socket, sockaddr* address, socklen_t* size) {
  const socklen_t room = size == nullptr ? 0 : *size;
  const long result = kernel::call(SYS_getpeername, socket, kernel::to(address), kernel::to(size));
  return seen(static_cast<int>(answer(result)), address, size, room);
}
