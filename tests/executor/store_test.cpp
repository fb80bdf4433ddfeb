#include "executor/network/store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "executor/network/local_address.h"

namespace fsdp::executor {
namespace {

constexpr std::chrono::milliseconds kSoon{200};

/// Ranks that meet in a file of their own.
class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/store." + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Launch launch_of(int rank, int world_size = 2) const {
    Launch launch;
    launch.rank = rank;
    launch.world_size = world_size;
    launch.store_file = path_;
    launch.restart = "0";
    return launch;
  }
  c10::intrusive_ptr<c10d::Store> file() const { return c10::make_intrusive<c10d::FileStore>(path_, -1); }

  std::string path_;
};

std::string failure_of(const Launch& launch) {
  try {
    make_store(launch, kSoon);
    return "";
  } catch (const CollectiveFailure& failure) {
    return failure.what();
  }
}

/// A listening socket at a port of the kernel's choice.
struct Listening {
  Listening() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    bind(socket, reinterpret_cast<sockaddr*>(&address), length);
    getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
    listen(socket, 1);
    port = ntohs(address.sin_port);
  }
  ~Listening() { end(); }
  void end() {
    if (socket >= 0) close(socket);
    socket = -1;
  }
  int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  int port = 0;
};

/// The address at which a socket listens, as text.
std::string address_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6&>(address).sin6_addr, text, sizeof text);
  }
  return text;
}

TEST_F(StoreTest, KeysBeginWithTheRunAndTheRestart) {
  Launch launch = launch_of(1);
  launch.run_id = "a";
  launch.restart = "3";
  const MeetingPlace place = make_store(launch, kSoon);
  place.store->set("key", std::string("value"));
  EXPECT_EQ(file()->get_to_str("fsdp-exec/a/3/key"), "value");
  EXPECT_EQ(place.door, nullptr);
}

TEST_F(StoreTest, LongRunNameIsShortened) {
  Launch launch = launch_of(0);
  launch.run_id = std::string(5000, 'r');
  make_store(launch, kSoon).store->set("key", std::string("value"));
  EXPECT_EQ(file()->get_to_str("fsdp-exec/" + std::string(128, 'r') + "/0/key"), "value");
}

TEST_F(StoreTest, RankCanJoinOnce) {
  const MeetingPlace first = make_store(launch_of(0), kSoon);  // The file exists while this object lives.
  EXPECT_EQ(failure_of(launch_of(1)), "");
  EXPECT_EQ(failure_of(launch_of(1)),
            "rank 1 of a run is in " + path_ + " already. Give each run a FSDP_EXEC_STORE_FILE of its own");
  Launch restarted = launch_of(1);
  restarted.restart = "1";
  EXPECT_EQ(failure_of(restarted), "");
  Launch other = launch_of(1);
  other.run_id = "other";
  EXPECT_EQ(failure_of(other), "");
}

TEST_F(StoreTest, RanksThatReportNoFailureAreSilent) {
  const MeetingPlace place = make_store(launch_of(1, 4), kSoon);
  place.store->set("failed/3", std::string("yes"));
  EXPECT_EQ(silent_ranks(place.store, launch_of(1, 4)), (std::vector<int>{0, 2}));
  EXPECT_EQ(place.store->get_to_str("failed/1"), "yes");
}

TEST_F(StoreTest, NoRankIsSilentIfAllHaveReported) {
  const MeetingPlace place = make_store(launch_of(1), kSoon);
  place.store->set("failed/0", std::string("yes"));
  EXPECT_EQ(silent_ranks(place.store, launch_of(1)), std::vector<int>());
}

/// A store whose process has stopped.
class StoppedStore : public c10d::FileStore {
 public:
  using FileStore::FileStore;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    std::this_thread::sleep_for(std::chrono::hours(1));
    FileStore::set(key, value);
  }
};

TEST_F(StoreTest, RankZeroIsSilentIfItsStoreIs) {
  const auto stopped = [&] { return c10::make_intrusive<StoppedStore>(path_, -1); };
  Launch launch = launch_of(1, 3);
  EXPECT_EQ(silent_ranks(stopped(), launch), std::vector<int>()) << "a file is nobody's";
  launch.store_file.clear();
  launch.master_address = "127.0.0.1";
  EXPECT_EQ(silent_ranks(stopped(), launch), std::vector<int>{0});
  launch.agent_has_store = true;
  EXPECT_EQ(silent_ranks(stopped(), launch), std::vector<int>()) << "the agent serves it";
}

TEST(StoreAtAnAddress, RankZeroServesItAndHasItsDoor) {
  Listening found;
  found.end();
  Launch launch;
  launch.master_address = "127.0.0.1";
  launch.master_port = found.port;
  const MeetingPlace place = make_store(launch, std::chrono::minutes(1));
  ASSERT_NE(place.door, nullptr);
  EXPECT_EQ(place.door->port(), found.port);
  EXPECT_EQ(failure_of(launch), "port " + std::to_string(found.port) +
                                    " of this machine is taken. Set MASTER_PORT to another, on all ranks");
}

TEST(StoreAtAnAddress, AnAgentServesItInstead) {
  Listening found;
  found.end();
  Launch launch;
  launch.master_address = "127.0.0.1";
  launch.master_port = found.port;
  launch.agent_has_store = true;
  EXPECT_EQ(failure_of(launch), why_unreached("127.0.0.1", found.port));
}

TEST(WithoutPlace, RemovesTheSourceLocation) {
  EXPECT_EQ(without_place("[/path/pair.cc:538] Read error [127.0.0.1]"), "Read error [127.0.0.1]");
  EXPECT_EQ(without_place("Read error [here] there"), "Read error [here] there");
  EXPECT_EQ(without_place("[no end"), "[no end");
  EXPECT_EQ(without_place(""), "");
}

TEST(ListenAt, ListensOnlyAtTheGivenAddress) {
  const Result<int> socket = listen_at("127.0.0.1", 0);
  ASSERT_TRUE(socket);
  EXPECT_EQ(address_of(*socket), "127.0.0.1");
  close(*socket);
}

// TEST-NET-1 of RFC 5737, which no machine has, as with a forwarded port.
TEST(ListenAt, ListensEverywhereIfTheAddressIsNotLocal) {
  const Result<int> socket = listen_at("192.0.2.1", 0);
  ASSERT_TRUE(socket);
  EXPECT_TRUE(address_of(*socket) == "0.0.0.0" || address_of(*socket) == "::") << address_of(*socket);
  close(*socket);
}

TEST(ListenAt, PortInUseIsReported) {
  const Listening taken;
  const Result<int> socket = listen_at("127.0.0.1", taken.port);
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().front().what, "port " + std::to_string(taken.port) +
                                             " of this machine is taken. Set MASTER_PORT to another, on all ranks");
}

TEST(WhyUnreached, AnotherServiceAnswers) {
  const Listening other;
  EXPECT_EQ(why_unreached("127.0.0.1", other.port),
            "the process at 127.0.0.1 port " + std::to_string(other.port) +
                " is not the store of rank 0. Is the port taken? Set MASTER_PORT to another, on all ranks");
}

TEST(WhyUnreached, NothingListens) {
  Listening gone;
  gone.end();
  EXPECT_EQ(why_unreached("127.0.0.1", gone.port),
            "127.0.0.1 is there, and nothing listens at its port " + std::to_string(gone.port) +
                ": rank 0 has not started, has ended, or trains with the ranks that it has met");
}

TEST(WhyUnreached, HostIsUnknown) {
  EXPECT_TRUE(why_unreached("no.such.host.invalid", 29500)
                  .starts_with("the host of MASTER_ADDR, \"no.such.host.invalid\", is unknown: "));
}

}  // namespace
}  // namespace fsdp::executor
