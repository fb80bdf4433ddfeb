#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "executor/network/collectives.h"

namespace fsdp::executor {
namespace {

using std::chrono::milliseconds;

/// Two ranks of this process that meet at an address; the first of them owns the store.
class TwoRanks : public testing::Test {
 protected:
  static int free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
    close(socket);
    return ntohs(address.sin_port);
  }

  static std::unique_ptr<GlooNetwork> network_of(int rank, int port) {
    Launch launch;
    launch.rank = rank;
    launch.world_size = 2;
    launch.master_address = "127.0.0.1";
    launch.master_port = port;
    return std::make_unique<GlooNetwork>(launch, std::chrono::minutes(1), ReduceAlgorithm::Direct);
  }
};

TEST_F(TwoRanks, RankThatServesTheStoreLeavesLast) {
  const int port = free_port();
  std::string heard;
  std::thread slow([&] {
    const std::unique_ptr<GlooNetwork> network = network_of(1, port);
    network->barrier("done");
    std::this_thread::sleep_for(milliseconds(300));
    try {
      heard = network->get("words");
    } catch (const CollectiveFailure& failure) {
      heard = failure.what();
    }
    network->leave();
  });
  std::unique_ptr<GlooNetwork> first = network_of(0, port);
  first->put("words", "of rank 0");
  first->barrier("done");
  first->leave();
  first.reset();
  slow.join();
  EXPECT_EQ(heard, "of rank 0");
}

}  // namespace
}  // namespace fsdp::executor
