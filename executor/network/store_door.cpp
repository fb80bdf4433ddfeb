// PyTorch's store limits a single value and never their sum, and listens until it ends. But its listening socket is
// ours, and dup2 can replace it: once all ranks have come, an eventfd that is never ready takes its number. The kernel
// then drops the socket and its queue. The store's loop, which is registered with the socket and not with the number,
// gets no more events, and closes the number at its end. (A shutdown of the socket instead makes the loop spin on its
// error; /dev/null is ready at once, which ends a store that polls.)
//
// While the ranks meet, a thread adds up the bytes that the kernel has received on the store's connections. It finds
// them among the descriptors of the process: their own end is the store's port.
//
// Not modeled: the bytes of a connection that opens and closes between two polls.
//
// Sources: torch/csrc/distributed/c10d/TCPStore.cpp, TCPStoreLibUvBackend.cpp (MAX_STRING_LEN, onConnect), torch 2.11;
// dup(2), epoll(7) ("Will closing a file descriptor cause it to be removed"), tcp(7) (TCP_INFO); RFC 4898
// (tcpi_bytes_received).

#include "executor/network/store_door.h"

#include <dirent.h>
#include <fmt/format.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/units.h"
#include "executor/network/collectives.h"
#include "executor/network/local_address.h"

namespace fsdp::executor {

namespace {

constexpr std::chrono::milliseconds kBetweenCounts{10};

struct End {
  std::string host;
  int port = 0;
};

struct Connection {
  int descriptor = -1;
  End own;
  End other;
  std::int64_t received = 0;
};

// An IPv4 address has the same text for either kind of socket, and without a scope, which other hosts do not know.
std::string plain(std::string host) {
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped)) host.erase(0, kMapped.size());
  return host.substr(0, host.find('%'));
}

bool read_end(int (*ask)(int, sockaddr*, socklen_t*), int socket, End& end) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (ask(socket, generic, &size) != 0) return false;
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return false;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (getnameinfo(generic, size, host.data(), host.size(), service.data(), service.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return false;
  }
  end = {plain(host.data()), std::atoi(service.data())};
  return true;
}

std::vector<Connection> connections_of_process() {
  std::vector<Connection> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  for (const dirent* entry = nullptr; folder && (entry = readdir(folder.get())) != nullptr;) {
    Connection connection;
    connection.descriptor = std::atoi(static_cast<const char*>(entry->d_name));
    if (!read_end(getpeername, connection.descriptor, connection.other)) continue;
    if (!read_end(getsockname, connection.descriptor, connection.own)) continue;
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (getsockopt(connection.descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    connection.received = static_cast<std::int64_t>(info.tcpi_bytes_received);
    found.push_back(std::move(connection));
  }
  return found;
}

std::string text_of(const End& end) {
  return fmt::format("{} {}", end.host, end.port);
}

}  // namespace

std::int64_t room_for_meeting(int world_size) {
  constexpr std::int64_t kForOddities = std::int64_t{16} << 20;
  constexpr std::int64_t kForARank = std::int64_t{64} << 10;
  constexpr std::int64_t kForAPair = std::int64_t{4} << 10;
  return kForOddities + world_size * (kForARank + world_size * kForAPair);
}

std::vector<std::string> own_ends(int port) {
  std::vector<std::string> ends;
  for (const Connection& connection : connections_of_process()) {
    if (connection.other.port == port) ends.push_back(text_of(connection.own));
  }
  return ends;
}

struct StoreDoor::State {
  int listener = -1;
  int never_ready = -1;
  int port = 0;
  std::int64_t room = 0;

  mutable std::mutex mutex;
  std::condition_variable wake;
  bool is_closed = false;
  std::string problem;
  std::map<std::string, std::int64_t> received;  // Open connections, by their other end.
  std::int64_t gone = 0;                         // Closed connections.
  std::thread thread;

  std::vector<Connection> visitors() const;
  void run();
  void look();
  void close();
};

std::vector<Connection> StoreDoor::State::visitors() const {
  std::vector<Connection> found = connections_of_process();
  std::erase_if(found, [this](const Connection& connection) { return connection.own.port != port; });
  return found;
}

void StoreDoor::State::run() {
  std::unique_lock lock(mutex);
  while (!is_closed) {
    look();
    wake.wait_for(lock, kBetweenCounts, [this] { return is_closed; });
  }
}

void StoreDoor::State::look() {
  const std::vector<Connection> here = visitors();
  std::map<std::string, std::int64_t> now;
  for (const Connection& connection : here) now[text_of(connection.other)] = connection.received;
  std::int64_t sum = 0;
  for (const auto& [end, bytes] : received) {
    const auto still = now.find(end);
    if (still == now.end() || still->second < bytes) gone += bytes;
  }
  for (const auto& [end, bytes] : now) sum += bytes;
  received = std::move(now);
  if (gone + sum <= room) return;
  problem = fmt::format(
      "while the ranks met, the store at port {} was sent more than {} MiB, which no ranks do. Who else reaches that "
      "port? Let a firewall keep others out",
      port, room >> 20);
  close();
  for (const Connection& connection : here) shutdown(connection.descriptor, SHUT_RDWR);
}

void StoreDoor::State::close() {
  if (!std::exchange(is_closed, true)) dup2(never_ready, listener);
}

StoreDoor::StoreDoor(int listener, std::int64_t room) : state_(std::make_shared<State>()) {
  state_->listener = listener;
  state_->room = room;
  state_->never_ready = eventfd(0, EFD_CLOEXEC);
  if (state_->never_ready < 0) throw CollectiveFailure(no_descriptors());
  End own;
  if (read_end(getsockname, listener, own)) state_->port = own.port;
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

StoreDoor::~StoreDoor() {
  close();
  state_->thread.join();
  ::close(state_->never_ready);
}

int StoreDoor::port() const {
  return state_->port;
}

void StoreDoor::close() {
  const std::lock_guard lock(state_->mutex);
  state_->close();
  state_->wake.notify_all();
}

std::string StoreDoor::put_out_others(const std::set<std::string>& ends) {
  std::vector<Connection> others = state_->visitors();
  const std::size_t came = others.size();
  std::erase_if(others, [&](const Connection& connection) { return ends.contains(text_of(connection.other)); });
  const std::size_t missing = ends.size() - (came - others.size());
  if (missing == 0) {
    for (const Connection& connection : others) shutdown(connection.descriptor, SHUT_RDWR);
    return {};
  }
  if (came <= ends.size()) return {};
  return fmt::format(
      "{} connections to the store at port {} are not of this run, and which ones is unknown, because addresses are "
      "translated on the way. Let a firewall keep others out",
      came - ends.size(), state_->port);
}

std::string StoreDoor::problem() const {
  const std::lock_guard lock(state_->mutex);
  return state_->problem;
}

}  // namespace fsdp::executor
