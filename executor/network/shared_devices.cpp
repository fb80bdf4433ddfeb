// NCCL treats two ranks as ranks of one card if host and PCI address are equal, and refuses them; so we compare the
// same. We also compare UUIDs, since virtual machines may pass one card on under several addresses.
//
// Sources: NCCL 2.28, src/init.cc (busId and hostHash of its peers), src/misc/utils.cc (getHostHash: host name and
// /proc/sys/kernel/random/boot_id).

#include "executor/network/shared_devices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <set>
#include <utility>

namespace fsdp::executor {

namespace {

std::string device_key(int rank) {
  return fmt::format("device/{}", rank);
}

std::string to_text(const DeviceIdentity& device) {
  return fmt::format("{}\n{}\n{}", device.host, device.bus, device.uuid);
}

DeviceIdentity from_text(const std::string& text) {
  const std::size_t first = text.find('\n');
  const std::size_t second = first == std::string::npos ? first : text.find('\n', first + 1);
  if (second == std::string::npos) throw CollectiveFailure("a rank's report about its GPU cannot be read");
  return {text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

}  // namespace

std::string this_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (std::getline(file, id) && !id.empty()) return id;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool any_is_shared(const std::vector<DeviceIdentity>& devices) {
  std::set<std::string> uuids;
  std::set<std::pair<std::string, std::string>> places;
  for (const DeviceIdentity& device : devices) {
    const bool is_new = device.uuid.empty() || uuids.insert(device.uuid).second;
    if (!places.emplace(device.host, device.bus).second || !is_new) return true;
  }
  return false;
}

bool any_is_shared(GlooNetwork& network, int rank, int world_size, const DeviceIdentity& own) {
  static constexpr const char* kAnswer = "devices are shared";
  if (rank != 0) {
    network.put(device_key(rank), to_text(own));
    return network.get(kAnswer) == "yes";
  }
  std::vector<DeviceIdentity> devices = {own};
  for (int other = 1; other < world_size; ++other) devices.push_back(from_text(network.get(device_key(other))));
  const bool is_shared = any_is_shared(devices);
  network.put(kAnswer, is_shared ? "yes" : "no");
  return is_shared;
}

}  // namespace fsdp::executor
