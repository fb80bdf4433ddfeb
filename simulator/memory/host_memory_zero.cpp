// With offload_optimizer, a rank keeps these tensors on the host. It updates P elements of e bytes each on the device,
// and the largest trained parameter has L elements; m = 4 bytes each, or e with bf16_master_weights_and_grads:
//
//                          ZeRO-1 and 2                     ZeRO-3
//   fp32 parameters        m P, pinned                      m P, not pinned, one for each sub-group
//   gradients              m P, pinned                      m P, pinned, one for each sub-group
//   16-bit copies          e P of parameters on their way   e P of gradients, pinned
//                          to the device, and e L; pinned
//   moments                m P each, not pinned             the same
//
// ZeRO-2 with several micro-batches keeps each gradient that reaches into its part, whole: e bytes an element, pinned,
// made in the first backward, unless m is e. In fp16 ZeRO-3 looks for overflows there: 3 P temporarily. ZeRO-3 casts a
// sub-group's parameters on the host before they go to the device: e bytes
// of the largest one, temporarily; with offload_param they stay there, e P, pinned regardless of pin_memory.
// deepspeed.zero.Init has pinned each parameter's part by itself before; PyTorch does not free such blocks, and reuses
// them for later tensors of the same block size.
//
// Pinned tensors are copies of unpinned ones, so both exist while the engine is made. DeepSpeedCPUAdam makes no
// temporaries; PyTorch's SGD, a loop on the host, makes one gradient with the weight decay added.
//
// Sources: deepspeed/runtime/zero/stage_1_and_2.py (__init__, initialize_optimizer_states,
// async_accumulate_grad_in_cpu_via_gpu), stage3.py (_create_fp32_partitions, initialize_optimizer_states,
// _setup_for_real_optimizer, _create_param_groups_fp16_flat_cpu_memory, _reassign_or_swap_out_partitioned_parameters),
// partition_parameters.py (_partition_param), ops/adam/cpu_adam.py, DeepSpeed 0.19.8; ATen/core/CachingHostAllocator.h
// (allocate: PowerOf2Ceil), ATen/native/cuda/Copy.cu (copy_kernel_cuda: a copy that blocks is cast on the host), torch
// 2.11.
//
// With a ratio below 1, P for fp32 parameters, moments and gradients is that of the last sub-groups. With the optimizer
// on an NVMe drive it is that of the sub-groups that are too small for a file. Traffic to and from the drive passes
// through buffers that DeepSpeed locks itself, without PyTorch's blocks (core/frameworks/zero/zero_nvme.cpp has their
// sizes). The first step makes moments outside them: those of a sub-group, or all of them if reads or writes are
// pipelined, because then each stays until it is read again. With parameters on the drive, those that stay have at most
// max_in_cpu elements, in a buffer of that size.
//
// Not modeled: DS_PIN_MEMORY_BACKEND=native, which pins without blocks.

#include "simulator/memory/host_memory_zero.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/frameworks/zero/zero_nvme.h"
#include "core/frameworks/zero/zero_partition.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/parameter_part.h"
#include "simulator/memory/host_memory.h"

namespace fsdp::simulator {

namespace {

constexpr std::string_view kPinned = "pinned, rounded up to powers of two (ATen/core/CachingHostAllocator.h)";
constexpr std::string_view kPageable = "not pinned";
constexpr std::string_view kLocked = "page-locked by DeepSpeed itself (csrc/pin_memory)";

class ZeroHost {
  using Elements = std::vector<std::pair<int, std::int64_t>>;

 public:
  ZeroHost(const Plan& plan, const Layout& layout) : plan_(plan), zero_(layout.zero), layout_(layout) {
    for (std::size_t g = 0; g < zero_.num_groups(); ++g) {
      groups_.push_back(zero_.group_elements(g));
    }
    for (const ShardedUnit& unit : layout.units) {
      for (const ShardedParameter& p : unit.parameters) elements_.push_back({p.parameter, p.elements});
    }
    std::sort(elements_.begin(), elements_.end());
    for (const GradientBucket& bucket : layout.buckets) {
      reduced_.insert(reduced_.end(), bucket.parameters.begin(), bucket.parameters.end());
    }
    std::sort(reduced_.begin(), reduced_.end());
    if (uses_drive(plan)) on_drive_ = groups_on_drive(zero_, plan);
  }

  std::vector<HostTensor> tensors(std::int64_t rank) const {
    std::vector<HostTensor> all;
    const auto add = [&](std::string_view name, std::int64_t bytes, bool is_pinned) {
      if (bytes > 0) all.push_back({name, bytes, is_pinned, is_pinned ? kPinned : kPageable});
    };
    const bool pins = plan_.zero.pin_memory;
    const bool is_third = layout_.gathers_by_module();
    const auto add_locked = [&](std::string_view name, std::int64_t bytes) {
      if (bytes > 0) all.push_back({name, bytes, false, kLocked});
    };
    add("fp32 parameters", is_third ? master() * host_part() : held(master() * part()), pins && !is_third);
    add("optimizer states", num_moments(plan_.optimizer) * master() * host_part(), false);
    add("gradients", gradients(), pins);
    if (is_third) {
      add("16-bit gradients", held(item() * part()), pins);
      if (plan_.zero.offload_param) add("16-bit parameters", flat_parameters(), true);
      add_locked("buffers of the optimizer's files", optimizer_swap_buffers(zero_, plan_));
      add_locked("buffers of parameters' files", parameter_buffers());
      add("blocks of 16-bit parameters and of gradients that have moved", blocks_left(), pins);
    } else {
      add("parameters on their way back", held(item() * part()), pins);
      add("largest gradient", held(item() * largest()), pins);
      add("gradients of earlier micro-batches", earlier_gradients(rank), pins);
    }
    add("temporaries", temporaries(), false);
    return all;
  }

  std::int64_t making() const {
    const std::int64_t fp32 = master() * host_part();
    if (uses_drive(plan_)) return making_with_drive();
    if (layout_.gathers_by_module()) {
      const std::int64_t kept = (plan_.zero.offload_param ? pinned_block(item() * part()) : 0) + blocks_left();
      const std::int64_t group = master() * largest_group();
      // Cast and cloned; then zeros for all sub-groups, of which the last one is not pinned yet.
      return kept + fp32 + std::max(2 * group, group + gradients() + (plan_.zero.pin_memory ? group : 0));
    }
    const std::int64_t before = held(fp32) + held(item() * part());
    const std::int64_t buffer = item() * largest();
    const std::int64_t copied = plan_.zero.pin_memory ? 1 : 0;
    return before + held(buffer) + std::max(copied * buffer, held(fp32) + copied * fp32);
  }

 private:
  std::int64_t master() const { return size_of(zero_master_dtype(plan_)).count(); }
  std::int64_t item() const { return size_of(zero_.dtype).count(); }
  std::int64_t part() const { return zero_.part_elements(); }
  std::int64_t host_part() const {
    if (on_drive_.empty()) return elements_on_host(zero_, plan_);
    std::int64_t elements = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) elements += on_drive_[g] ? 0 : groups_[g];
    return elements;
  }
  std::int64_t held(std::int64_t bytes) const { return plan_.zero.pin_memory ? pinned_block(bytes) : bytes; }

  std::int64_t largest_group() const { return groups_.empty() ? 0 : *std::max_element(groups_.begin(), groups_.end()); }

  std::int64_t largest_group(bool is_on_drive) const {
    std::int64_t most = 0;
    for (std::size_t g = 0; g < on_drive_.size(); ++g) {
      if (on_drive_[g] == is_on_drive) most = std::max(most, groups_[g]);
    }
    return most;
  }

  bool has_parameters_on_drive() const { return uses_drive(plan_) && plan_.zero.nvme.parameters; }

  std::int64_t flat_parameters() const {
    if (!has_parameters_on_drive()) return pinned_block(item() * part());
    return pinned_block(item() * std::min(part(), plan_.zero.nvme.max_in_cpu));
  }

  std::int64_t parameter_buffers() const {
    return parameter_swap_buffers(layout_, plan_) + parameter_write_buffer(layout_, plan_);
  }

  // A sub-group from the drive is cast on its way into the optimizer's files.
  std::int64_t making_with_drive() const {
    const std::int64_t kept = (plan_.zero.offload_param ? flat_parameters() : 0) + blocks_left() +
                              optimizer_swap_buffers(zero_, plan_) + parameter_buffers();
    const std::int64_t own = master() * largest_group(false);
    const std::int64_t cast = has_parameters_on_drive() ? master() : plan_.zero.offload_param ? 0 : item();
    const std::int64_t moved = cast * largest_group(true);
    const std::int64_t zeros = master() * largest_group() + gradients() + (plan_.zero.pin_memory ? own : 0);
    const std::int64_t flat = gradients() + held(item() * part()) + (plan_.zero.pin_memory ? item() * part() : 0);
    return kept + master() * host_part() + std::max({2 * own, moved, zeros, flat});
  }

  // Outside the buffers, in the first step.
  std::int64_t new_moments() const {
    if (on_drive_.empty()) return 0;
    const bool is_pipelined = plan_.zero.nvme.pipeline_read || plan_.zero.nvme.pipeline_write;
    return num_moments(plan_.optimizer) * master() * (is_pipelined ? part() - host_part() : largest_group(true));
  }

  bool stays_on_host(int parameter, std::int64_t own) const {
    if (!has_parameters_on_drive()) return true;
    return own * size_of(layout_.parameter_dtype[parameter]).count() < smallest_file(plan_);
  }

  // True if it is in the buffer of all parameters.
  bool has_moved(int parameter) const {
    const auto place = std::lower_bound(zero_.parameters.begin(), zero_.parameters.end(), parameter);
    if (place == zero_.parameters.end() || *place != parameter) return false;
    if (!has_parameters_on_drive()) return true;
    const std::size_t moved = zero_.group_begins[groups_in_memory(zero_, plan_)];
    return static_cast<std::size_t>(place - zero_.parameters.begin()) < moved;
  }

  std::int64_t gradients() const {
    if (!layout_.gathers_by_module()) return held(master() * part());
    std::int64_t bytes = 0;
    for (std::size_t g = groups_on_device(zero_, plan_); g < groups_.size(); ++g) {
      if (on_drive_.empty() || !on_drive_[g]) bytes += held(master() * groups_[g]);
    }
    return bytes;
  }

  std::int64_t elements_of(int parameter) const {
    const auto found = std::lower_bound(elements_.begin(), elements_.end(), std::pair(parameter, std::int64_t{0}));
    return found->second;
  }

  std::int64_t largest() const {
    std::int64_t most = 0;
    for (const int p : zero_.parameters) most = std::max(most, elements_of(p));
    return most;
  }

  // For separate parameters, with offload_param, and for gradients on their way to the device. Blocks of trained ones
  // are free after those have moved, and some later pinned tensors use them; frozen ones stay in place.
  std::int64_t blocks_left() const {
    std::int64_t bytes = 0;
    std::multiset<std::int64_t> free;
    for (const auto& [parameter, elements] : plan_.zero.offload_param ? elements_ : Elements{}) {
      const std::int64_t own = part_of(elements, CutBy::Elements, zero_.ranks).chunk;
      if (!stays_on_host(parameter, own)) continue;
      const std::int64_t held_bytes = held(own * size_of(layout_.parameter_dtype[parameter]).count());
      const bool is_free = has_moved(parameter);
      if (is_free && !plan_.zero.pin_memory) continue;
      bytes += held_bytes;
      if (is_free) free.insert(held_bytes);
    }
    const auto take = [&](std::int64_t wanted) {
      const auto found = free.find(held(wanted));
      if (found == free.end()) return;
      bytes -= *found;
      free.erase(found);
    };
    const std::size_t on_device = groups_on_device(zero_, plan_);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!on_drive_.empty() && on_drive_[g]) continue;
      take(master() * groups_[g]);
      if (g >= on_device || !plan_.zero.pin_memory) continue;
      const std::int64_t block = held(master() * groups_[g]);
      bytes += block;
      free.insert(block);
    }
    take(item() * part());
    return bytes;
  }

  std::int64_t earlier_gradients(std::int64_t rank) const {
    // With the optimizer's tensors in 16 bits, they are summed in its gradients.
    const bool keeps = zero_.cuts_gradients && !layout_.gathers_by_module() && plan_.accumulation > 1;
    if (!keeps || master() != size_of(Dtype::Float32).count()) return 0;
    std::int64_t bytes = 0;
    for (const ZeroSlice& slice : slices_of_rank(zero_, rank)) {
      const bool has_gradient = std::binary_search(reduced_.begin(), reduced_.end(), slice.parameter);
      if (has_gradient) bytes += held(item() * elements_of(slice.parameter));
    }
    return bytes;
  }

  std::int64_t temporaries() const {
    const std::int64_t updated = layout_.gathers_by_module() ? largest_group() : part();
    const bool decays = !optimizer_row(plan_.optimizer).has_cpu_adam && adds_decay(plan_.optimizer);
    const bool casts =
        layout_.gathers_by_module() && zero_.dtype != zero_master_dtype(plan_) && !plan_.zero.offload_param;
    // ZeRO-3 looks for overflows of fp16 in the gradients: their magnitudes, and a byte for each.
    const bool checks = layout_.gathers_by_module() && zero_.dtype == Dtype::Float16;
    const std::int64_t stepping = std::max(decays ? master() * updated : 0, casts ? item() * updated : 0);
    return std::max(new_moments() + stepping, checks ? (item() + 1) * part() : 0);
  }

  const Plan& plan_;
  const ZeroBuffer& zero_;
  const Layout& layout_;
  std::vector<std::int64_t> groups_;  // Elements of each sub-group of ZeRO-3.
  Elements elements_;                 // One for each parameter, ascending.
  std::vector<int> reduced_;          // Parameters that get a gradient, ascending.
  std::vector<bool> on_drive_;        // [sub-groups] For plans with a drive.
};

}  // namespace

std::vector<HostTensor> zero_host_tensors(const Plan& plan, const Layout& layout, std::int64_t rank) {
  return ZeroHost(plan, layout).tensors(rank);
}

std::int64_t zero_host_making(const Plan& plan, const Layout& layout) {
  return ZeroHost(plan, layout).making();
}

}  // namespace fsdp::simulator
