#include "executor/network/store_door.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fsdp::executor {
namespace {

/// The part of a store that a door uses: a listening socket, and the connections that it accepted.
class StoreDoorTest : public testing::Test {
 protected:
  void SetUp() override {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    ASSERT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    ASSERT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    ASSERT_EQ(listen(listener_, 16), 0);
    address_ = address;
  }
  void TearDown() override {
    for (const int descriptor : opened_) close(descriptor);
    close(listener_);
  }

  /// The visitor's end of the connection; -1 if the door refuses it.
  int come() {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    opened_.push_back(client);
    if (connect(client, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) != 0) return -1;
    opened_.push_back(accept(listener_, nullptr, nullptr));
    return client;
  }

  static std::string end_of(int client) {
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    getsockname(client, reinterpret_cast<sockaddr*>(&address), &length);
    return "127.0.0.1 " + std::to_string(ntohs(address.sin_port));
  }

  static bool is_put_out(int client) {
    pollfd wanted{.fd = client, .events = POLLIN, .revents = 0};
    return poll(&wanted, 1, 0) == 1;
  }

  int port() const { return ntohs(address_.sin_port); }

  int listener_ = -1;

 private:
  sockaddr_in address_{};
  std::vector<int> opened_;
};

constexpr std::int64_t kMuch = std::int64_t{1} << 30;

TEST_F(StoreDoorTest, ClosedDoorAcceptsNoConnection) {
  StoreDoor door(listener_, kMuch);
  EXPECT_EQ(door.port(), port());
  EXPECT_GE(come(), 0);
  door.close();
  EXPECT_EQ(come(), -1);
  EXPECT_EQ(door.problem(), "");
}

TEST_F(StoreDoorTest, ClosedListenerIsNeverReady) {
  StoreDoor door(listener_, kMuch);
  door.close();
  pollfd wanted{.fd = listener_, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&wanted, 1, 20), 0);
}

TEST_F(StoreDoorTest, ConnectionsThatAreNoRankAreClosed) {
  StoreDoor door(listener_, kMuch);
  const int rank = come();
  const int stranger = come();
  door.close();
  EXPECT_EQ(door.put_out_others({end_of(rank)}), "");
  EXPECT_FALSE(is_put_out(rank));
  EXPECT_TRUE(is_put_out(stranger));
}

TEST_F(StoreDoorTest, TranslatedAddressesKeepAllConnections) {
  StoreDoor door(listener_, kMuch);
  const int rank = come();
  const int translated = come();
  door.close();
  const std::set<std::string> ends{end_of(rank), "10.0.0.7 40822"};
  EXPECT_EQ(door.put_out_others(ends), "");
  EXPECT_FALSE(is_put_out(translated));
}

TEST_F(StoreDoorTest, ExtraConnectionAmongTranslatedAddressesIsReported) {
  StoreDoor door(listener_, kMuch);
  const int rank = come();
  come();
  come();
  door.close();
  EXPECT_EQ(door.put_out_others({end_of(rank), "10.0.0.7 40822"}),
            "1 connections to the store at port " + std::to_string(port()) +
                " are not of this run, and which ones is unknown, because addresses are translated on the way. Let a "
                "firewall keep others out");
}

TEST_F(StoreDoorTest, TooManyConnectionsCloseAll) {
  StoreDoor door(listener_, std::int64_t{1} << 20);
  const int quiet = come();
  const int stranger = come();
  const std::string bytes(1 << 16, 'x');
  // The kernel buffers some bytes without a reader; then the writer waits, since nobody reads here.
  for (int i = 0; i < 17 && door.problem().empty(); ++i) {
    if (send(stranger, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
  }
  for (int i = 0; i < 17; ++i) {
    const int another = come();
    if (another >= 0) send(another, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  while (door.problem().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(door.problem(), "while the ranks met, the store at port " + std::to_string(port()) +
                                " was sent more than 1 MiB, which no ranks do. Who else reaches that port? Let a "
                                "firewall keep others out");
  EXPECT_EQ(come(), -1);
  EXPECT_TRUE(is_put_out(quiet));
}

TEST_F(StoreDoorTest, OwnEndsListConnectionsToThePort) {
  const int client = come();
  EXPECT_EQ(own_ends(port()), std::vector<std::string>{end_of(client)});
}

}  // namespace
}  // namespace fsdp::executor
