#include "simulator/prepared/host_of_others.h"

#include <fmt/format.h>

#include "simulator/memory/host_memory.h"

namespace fsdp::simulator {

void add_others_to_host(const PreparedPlan& prepared, bool is_made, HostMemory& host) {
  if (prepared.others == nullptr) return;
  Bytes processes;
  for (const DeviceTerm& term : host.terms) {
    if (term.name == "processes") processes = term.bytes;
  }
  for (const PreparedOther& other : prepared.others->models) {
    add_host_term(host, {fmt::format("shards of {}", other.name), other.host.shards, Provenance::Derived,
                         "pinned, rounded up to powers of two (ATen/core/CachingHostAllocator.h)"});
    host.pinned += other.host.shards;
  }
  if (!is_made) return;
  for (const PreparedOther& other : prepared.others->models) {
    const Bytes beyond = other.host.making - (host.needed - processes);
    add_host_term(host, {fmt::format("{} while it is made", other.name), beyond, Provenance::Derived,
                         "whole, before fully_shard moves it to the device"});
  }
}

std::optional<HostMemory> host_memory_with_others(const PreparedPlan& prepared, Bytes inputs) {
  const Cluster& cluster = *prepared.cluster;
  std::optional<HostMemory> host = host_memory(cluster, prepared.plan, prepared.layout, inputs);
  if (prepared.others == nullptr || cluster.gpu.compute_capability == 0) return host;
  bool is_on_host = false;
  for (const PreparedOther& other : prepared.others->models) {
    is_on_host = is_on_host || other.host.shards > Bytes(0) || other.host.making > Bytes(0);
  }
  if (!is_on_host) return host;
  if (!host) host = host_memory_in_training(cluster, prepared.plan, prepared.layout, inputs);
  add_others_to_host(prepared, true, *host);
  return host;
}

}  // namespace fsdp::simulator
