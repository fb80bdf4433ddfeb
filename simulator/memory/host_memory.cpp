// With CPUOffloadPolicy(pin_memory=True) a rank keeps in host memory, for a parameter of which it has s padded and l
// true elements of o bytes,
//
//   shard        o s, pinned: a block of the next power of two
//   gradient     o l, pinned likewise; made in the first backward, and its block is used again in every later one
//   optimizer    its states of l elements, in ordinary memory
//   temporaries  of one parameter at a time, in ordinary memory: PyTorch takes its loop over parameters where they lie
//                on CPU, which holds two results of l elements, and one of the parameter before (8-bit states: five
//                in fp32); and a gradient that is added to that of an earlier micro-batch arrives in a copy of its own
//
// While the model is created, the last three do not exist yet. `to_empty` makes the shards of a unit in ordinary
// memory, and then copies each into a pinned block. A model created on the CPU is whole there, on every rank, until its
// units are sharded one by one. The need is the larger of both moments.
//
// FSDP1's CPUOffload(offload_params=True) has the same for each flat parameter, frozen or not: its shard, and a
// gradient of its size from the first forward on. Shards are in ordinary memory until then, and are copied into pinned
// blocks together. The optimizer updates flat shards, or with use_orig_params the part of each parameter in them.
//
// Paged states (bitsandbytes) are in unified memory (cudaMallocManaged), beside PyTorch's allocator. They are on the
// GPU while it has room: the driver evicts them when cudaMalloc needs the room, and brings a tensor's states back for
// its update. So the GPU's need leaves them out, and the host's counts all of them.
//
// A node needs the sum over its ranks. If rows do not divide, the first ranks of a shard group hold most; the first
// node has the first ranks, so no other node needs more. A process's memory beside the model is an assumed term.
//
// The margin: the kernel keeps 64 bytes for each page of 4096 (struct page, 1.6 %), and the system's own services and
// caches need some of the rest.
//
// The inputs of checkpointed blocks (Checkpointing::offload_inputs) have a pinned block each, from the forward to the
// backward of their block.
//
// ZeRO's offload keeps other tensors there: host_memory_zero.cpp.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_param.py (_init_sharded_param, reset_sharded_param),
// _fsdp_collectives.py (foreach_reduce), torch/distributed/fsdp/_flat_param.py (init_flat_param_attributes),
// ATen/core/CachingHostAllocator.h (allocate: PowerOf2Ceil; no block is given back), ATen/native/TensorConversions.cpp
// (_to_copy: pinned when it does not block), torch/optim/adam.py
// (_single_tensor_adam), torch/optim/optimizer.py (_default_to_fused_or_foreach), torch 2.11; bitsandbytes 0.50.2,
// backends/cpu/ops.py (optimizer_update_8bit_blockwise).
//
// Not modeled: the pinned lists of addresses by which a unit's tensors are copied (some 100 KiB), the data loader, the
// file with the weights, NCCL's buffers in shared memory, checkpoints while they are written.

#include "simulator/memory/host_memory.h"

#include "core/frameworks/layout.h"
#include "core/plan/optimizer_table.h"
#include "simulator/memory/host_memory_zero.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::simulator {

namespace {

// Assumed: a rehearsed rank of a small model peaks at 1.1 GiB without a driver.
constexpr Bytes kProcess = Bytes(2LL << 30);
constexpr double kMargin = 0.04;

/// Bytes of one rank, or of several.
struct Held {
  std::int64_t shards = 0;
  std::int64_t gradients = 0;
  std::int64_t states = 0;
  std::int64_t paged = 0;  ///< States in unified memory, of parameters on the device.
  std::int64_t temporaries = 0;
  std::int64_t making = 0;  ///< While the model is created, including its pinned shards.

  std::int64_t training() const { return shards + gradients + states + paged + temporaries; }
};

Held operator*(std::int64_t count, const Held& held) {
  return {count * held.shards, count * held.gradients,   count * held.states,
          count * held.paged,  count * held.temporaries, count * held.making};
}

Held& operator+=(Held& sum, const Held& more) {
  sum.shards += more.shards;
  sum.gradients += more.gradients;
  sum.states += more.states;
  sum.paged += more.paged;
  sum.temporaries += more.temporaries;
  sum.making += more.making;
  return sum;
}

/// The peak of one parameter's update beside the states. The loop: Adam's root and quotient, and the quotient of the
/// parameter before; and the decayed gradient if decay is added to it. bitsandbytes: in fp32 the moments, the gradient,
/// Adam's root and quotient, and the parameter if it has another dtype.
std::int64_t update_bytes(const Optimizer& optimizer, std::int64_t elements, std::int64_t element_size) {
  const bool takes_roots = optimizer_row(optimizer).takes_roots;
  if (!has_torch_kernels(optimizer)) {
    const std::int64_t results = num_moments(optimizer) + (takes_roots ? 3 : 1) + (element_size == 4 ? 0 : 1);
    return 4 * results * elements;
  }
  if (optimizer.implementation == OptimizerImplementation::Fused) return 0;
  return ((takes_roots ? 3 : 0) + (adds_decay(optimizer) ? 1 : 0)) * elements * element_size;
}

class HostModel {
 public:
  HostModel(const Plan& plan, const Layout& layout) : plan_(plan), layout_(layout) {}

  Held of_rank(std::int64_t rank) const {
    Held held;
    if (plan_.cpu_offload && layout_.updates_parts()) {
      held.making = std::max(making(rank), zero_host_making(plan_, layout_));
      return held;
    }
    held.paged = paged(rank);
    std::int64_t largest = 0;
    for (const ShardedUnit& unit : layout_.units) {
      if (!plan_.cpu_offload) break;
      if (layout_.has_flat_units()) {
        add_flat(unit, rank, held, largest);
        continue;
      }
      for (const ShardedParameter& p : unit.parameters) add(p, rank, held, largest);
    }
    if (plan_.cpu_offload) {
      const bool arrives = !layout_.has_flat_units() && plan_.accumulation > 1 && plan_.sync_every_micro_batch;
      const std::int64_t arriving = arrives ? largest : 0;
      held.temporaries = std::max(arriving, held.temporaries);
    }
    held.making = making(rank);
    return held;
  }

 private:
  std::int64_t element_size(const ShardedParameter& p) const {
    return size_of(layout_.parameter_dtype[p.parameter]).count();
  }

  void add(const ShardedParameter& p, std::int64_t rank, Held& held, std::int64_t& largest) const {
    const std::int64_t size = element_size(p);
    const std::int64_t local = p.local_elements_of(rank);
    held.shards += pinned_block(p.shard_elements * size);
    if (!p.receives_gradient) return;
    held.gradients += pinned_block(local * size);
    add_updated(local, size, held, largest);
  }

  void add_flat(const ShardedUnit& unit, std::int64_t rank, Held& held, std::int64_t& largest) const {
    if (unit.parameters.empty()) return;
    const std::int64_t size = size_of(unit.original_dtype).count();
    held.shards += pinned_block(unit.shard_elements * size);
    held.gradients += pinned_block(unit.shard_elements * size);
    if (unit.reduced_true_elements == 0) return;
    if (layout_.flat == FlatParameters::Whole) return add_updated(unit.shard_elements, size, held, largest);
    for (const ShardedParameter& p : unit.parameters) {
      if (p.receives_gradient) add_updated(p.local_elements_of(rank), size, held, largest);
    }
  }

  // Moments of the tensors that the optimizer updates on the device: flat shards, parts of them, or parameters.
  std::int64_t paged(std::int64_t rank) const {
    if (plan_.cpu_offload || !optimizer_row(plan_.optimizer).pages_states) return 0;
    std::int64_t bytes = 0;
    const auto add = [&](std::int64_t elements, std::int64_t size) {
      if (!pages_moment(plan_.optimizer, elements)) return;
      bytes += num_moments(plan_.optimizer) * moment_bytes(plan_.optimizer, elements, size).values;
    };
    for (const ShardedUnit& unit : layout_.units) {
      const bool is_flat = layout_.has_flat_units() && layout_.flat == FlatParameters::Whole;
      if (is_flat && unit.reduced_true_elements > 0) add(unit.shard_elements, size_of(unit.original_dtype).count());
      for (const ShardedParameter& p : unit.parameters) {
        if (!is_flat && p.receives_gradient) add(p.local_elements_of(rank), element_size(p));
      }
    }
    return bytes;
  }

  // Adds the optimizer's tensors for `elements` at once.
  void add_updated(std::int64_t elements, std::int64_t size, Held& held, std::int64_t& largest) const {
    const MomentBytes moment = moment_bytes(plan_.optimizer, elements, size);
    held.states += num_moments(plan_.optimizer) * (moment.values + moment.scales);
    held.temporaries = std::max(held.temporaries, update_bytes(plan_.optimizer, elements, size));
    largest = std::max(largest, elements * size);
  }

  std::int64_t making(std::int64_t rank) const {
    std::int64_t whole = 0;
    if (plan_.initialization == Initialization::Cpu) {
      for (const ShardedUnit& unit : layout_.units) whole += whole_bytes(unit);
    }
    std::int64_t pinned = 0;
    std::int64_t shards = 0;  // Flat ones, which are pinned together.
    std::int64_t highest = whole;
    for (const ShardedUnit& unit : layout_.units) {
      // A whole unit moves to the device before it is sharded.
      if (plan_.initialization == Initialization::Cpu) whole -= whole_bytes(unit);
      if (!plan_.cpu_offload || layout_.updates_parts()) continue;
      std::int64_t empty = 0;
      if (layout_.has_flat_units()) {
        shards += unit.shard_elements * size_of(unit.original_dtype).count();
        pinned += 2 * pinned_block(unit.shard_elements * size_of(unit.original_dtype).count());
        highest = std::max(highest, whole + shards);
        continue;
      }
      for (const ShardedParameter& p : unit.parameters) {
        pinned += pinned_block(p.shard_elements * element_size(p));
        if (plan_.initialization == Initialization::Meta) empty += p.local_elements_of(rank) * element_size(p);
      }
      highest = std::max(highest, whole + pinned + empty);
    }
    if (layout_.has_flat_units()) highest = std::max(highest, shards + pinned);
    return highest;
  }

  std::int64_t whole_bytes(const ShardedUnit& unit) const {
    std::int64_t bytes = 0;
    for (const ShardedParameter& p : unit.parameters) bytes += p.elements * element_size(p);
    return bytes;
  }

  const Plan& plan_;
  const Layout& layout_;
};

/// How many ranks of the first node have a position in their shard group from `first` to before `end`.
std::int64_t ranks_between(std::int64_t first, std::int64_t end, std::int64_t shard, std::int64_t gpus_per_node) {
  const std::int64_t whole_groups = gpus_per_node / shard;
  const std::int64_t rest = gpus_per_node % shard;
  return whole_groups * (end - first) + std::clamp<std::int64_t>(rest - first, 0, end - first);
}

}  // namespace

std::int64_t pinned_block(std::int64_t bytes) {
  return bytes <= 0 ? 0 : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

Bytes checkpointed_inputs(std::span<const Tape* const> tapes) {
  Bytes pinned;
  for (const Tape* tape : tapes) {
    for (const std::int64_t bytes : tape->on_host) pinned += Bytes(pinned_block(bytes));
  }
  return pinned;
}

Bytes pinned_memory(const Plan& plan, const Layout& layout) {
  if (layout.updates_parts()) {
    Bytes pinned;
    if (!plan.cpu_offload) return pinned;
    for (const HostTensor& tensor : zero_host_tensors(plan, layout, layout.rank)) {
      if (tensor.is_pinned) pinned += Bytes(tensor.bytes);
    }
    return pinned;
  }
  const Held held = HostModel(plan, layout).of_rank(layout.rank);
  return Bytes(held.shards + held.gradients);
}

namespace {

/// Terms and their sum.
class HostTerms {
 public:
  void add(std::string name, std::int64_t bytes, Provenance provenance, std::string source, bool is_pinned = false) {
    if (bytes > 0) host.terms.push_back({std::move(name), Bytes(bytes), provenance, std::move(source)});
    host.needed += Bytes(bytes);
    if (is_pinned) host.pinned += Bytes(bytes);
  }

  HostMemory host;
};

Bytes margin_of(const HostMemory& host) {
  return Bytes(static_cast<std::int64_t>(kMargin * static_cast<double>(host.needed.count())));
}

std::int64_t bytes_of_all(const std::vector<HostTensor>& tensors) {
  std::int64_t bytes = 0;
  for (const HostTensor& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

/// All tensors of a node's ranks, merged by name.
std::vector<HostTensor> zero_tensors_of_node(const Cluster& cluster, const Plan& plan, const Layout& layout,
                                             std::int64_t node) {
  std::vector<HostTensor> all;
  for (std::int64_t i = 0; i < cluster.gpus_per_node; ++i) {
    for (const HostTensor& tensor : zero_host_tensors(plan, layout, node * cluster.gpus_per_node + i)) {
      const auto known =
          std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == tensor.name; });
      if (known == all.end()) {
        all.push_back(tensor);
      } else {
        known->bytes += tensor.bytes;
      }
    }
  }
  return all;
}

/// Tensors of the node that holds most: ranks differ by the parameters in their parts.
std::vector<HostTensor> zero_tensors(const Cluster& cluster, const Plan& plan, const Layout& layout) {
  const bool differ = layout.zero.cuts_gradients && !layout.gathers_by_module() && plan.accumulation > 1;
  std::vector<HostTensor> most;
  for (std::int64_t node = 0; node < (differ ? cluster.nodes : 1); ++node) {
    std::vector<HostTensor> tensors = zero_tensors_of_node(cluster, plan, layout, node);
    if (most.empty() || bytes_of_all(tensors) > bytes_of_all(most)) most = std::move(tensors);
  }
  return most;
}

void add_training(const Held& node, HostTerms& terms) {
  const std::string blocks = "pinned, rounded up to powers of two (ATen/core/CachingHostAllocator.h)";
  terms.add("shards", node.shards, Provenance::Derived, blocks, true);
  terms.add("gradients", node.gradients, Provenance::Derived, blocks, true);
  terms.add("optimizer states", node.states, Provenance::Derived, "of the ranks of the node");
  terms.add("paged optimizer states", node.paged, Provenance::Derived,
            "unified memory, which the driver moves to the host when PyTorch needs the GPU's");
  terms.add("temporaries", node.temporaries, Provenance::Derived, "results of the optimizer's loop");
}

}  // namespace

namespace {

// The sum over the ranks of the node that holds most.
Held held_by_node(const Cluster& cluster, const Plan& plan, const Layout& layout) {
  const HostModel model(plan, layout);
  const std::vector<std::int64_t> ranks = different_ranks(layout);
  Held node;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::int64_t end = i + 1 < ranks.size() ? ranks[i + 1] : layout.mesh.dp_shard();
    node += ranks_between(ranks[i], end, layout.mesh.dp_shard(), cluster.gpus_per_node) * model.of_rank(ranks[i]);
  }
  return node;
}

void add_processes(const Cluster& cluster, HostTerms& terms) {
  terms.add("processes", (cluster.gpus_per_node * kProcess).count(), Provenance::Assumed,
            fmt::format("{} of {} GiB: Python, PyTorch and CUDA", cluster.gpus_per_node, kProcess.count() >> 30));
  terms.host.margin = margin_of(terms.host);
  if (cluster.host_memory) terms.host.budget = cluster.host_memory->value;
}

void add_training(const Cluster& cluster, const Held& node, const std::vector<HostTensor>& tensors, Bytes inputs,
                  HostTerms& terms) {
  add_training(node, terms);
  terms.add("inputs of checkpointed blocks", cluster.gpus_per_node * inputs.count(), Provenance::Derived,
            "pinned, each rounded up to a power of two (torch.autograd.graph.save_on_cpu)", true);
  for (const HostTensor& tensor : tensors) {
    terms.add(std::string(tensor.name), tensor.bytes, Provenance::Derived, std::string(tensor.source),
              tensor.is_pinned);
  }
}

// Those of ZeRO's offload.
std::vector<HostTensor> offloaded_by_zero(const Cluster& cluster, const Plan& plan, const Layout& layout) {
  if (!plan.cpu_offload || !layout.updates_parts()) return {};
  return zero_tensors(cluster, plan, layout);
}

}  // namespace

HeldOnHost held_on_host(const Cluster& cluster, const Plan& plan, const Layout& layout) {
  if (cluster.gpu.compute_capability == 0) return {};
  const Held node = held_by_node(cluster, plan, layout);
  const Held rank = HostModel(plan, layout).of_rank(layout.rank);
  return {Bytes(node.shards), Bytes(rank.shards), Bytes(node.making)};
}

void add_host_term(HostMemory& host, DeviceTerm term) {
  if (term.bytes <= Bytes(0)) return;
  host.needed += term.bytes;
  host.terms.push_back(std::move(term));
  host.margin = margin_of(host);
}

HostMemory host_memory_in_training(const Cluster& cluster, const Plan& plan, const Layout& layout, Bytes inputs) {
  HostTerms terms;
  add_training(cluster, held_by_node(cluster, plan, layout), offloaded_by_zero(cluster, plan, layout), inputs, terms);
  add_processes(cluster, terms);
  return terms.host;
}

std::optional<HostMemory> host_memory(const Cluster& cluster, const Plan& plan, const Layout& layout, Bytes inputs) {
  if (cluster.gpu.compute_capability == 0) return std::nullopt;
  const bool has_inputs = inputs > Bytes(0);
  const bool pages_states = optimizer_row(plan.optimizer).pages_states;
  const bool is_on_host = plan.cpu_offload || plan.initialization == Initialization::Cpu || pages_states || has_inputs;
  if (!is_on_host) return std::nullopt;
  const std::int64_t pinned_inputs = cluster.gpus_per_node * inputs.count();
  const Held node = held_by_node(cluster, plan, layout);
  const bool is_zero_offload = plan.cpu_offload && layout.updates_parts();
  const std::vector<HostTensor> tensors = offloaded_by_zero(cluster, plan, layout);
  HostTerms terms;
  if (node.training() + bytes_of_all(tensors) + pinned_inputs >= node.making) {
    add_training(cluster, node, tensors, inputs, terms);
  } else {
    terms.add("model while it is made", node.making, Provenance::Derived,
              is_zero_offload                              ? "what DeepSpeed's engine makes, and what it is made of"
              : plan.initialization == Initialization::Cpu ? "unsharded on each rank of the node"
                                                           : "shards and what they are made of");
  }
  add_processes(cluster, terms);
  return terms.host;
}

}  // namespace fsdp::simulator
