// ZeRO-Infinity: what is on the drive, as DeepSpeed decides it.
//
// A tensor goes into a file if it has at least max(1 MiB, aio.block_size) bytes; a file has a multiple of
// 1 KiB * aio.intra_op_parallelism. With m bytes for an element that the optimizer updates, and e for a parameter:
//
//   optimizer      of a sub-group of G elements m G, and as much for each moment; of a gradient's part, what of it is
//                  whole pieces. The rest of it stays on the device until the sub-group is read. Sub-groups of fewer
//                  bytes stay in host memory
//   parameters     e times the rank's part of each. The first max_in_cpu elements of those that are trained go back to
//                  host memory, as far as whole sub-groups fit; and parts of fewer bytes stay there
//
// A step reads a sub-group's tensors and gradients, updates them and writes the tensors; gradients are written in the
// backward. The buffers that all of this passes through have a fixed number, and DeepSpeed ends with an error where
// there are too few:
//
//   one by one     1 + moments + 1 for the gradients
//   pipelined      those of the next sub-group, and of the last one, beside them. The first step makes moments outside
//                  of the buffers, and needs as many more for a moment
//
// Sources: deepspeed/runtime/swap_tensor/optimizer_utils.py, partitioned_optimizer_swapper.py,
// pipelined_optimizer_swapper.py, partitioned_param_swapper.py, utils.py (SwapBufferManager, MIN_AIO_BYTES,
// AIO_ALIGNED_BYTES), runtime/zero/stage3.py (_create_fp16_partitions_with_defragmentation, _create_fp32_partitions),
// DeepSpeed 0.19.8.
//
// Not modeled: fast_init, GDS.

#include "core/frameworks/zero/zero_nvme.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/frameworks/zero/zero_partition.h"
#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/parameter_part.h"

namespace fsdp {

namespace {

constexpr std::int64_t kMostInMemory = std::int64_t{1} << 20;  // MIN_AIO_BYTES.
constexpr std::int64_t kPiece = 1024;                          // AIO_ALIGNED_BYTES.

std::int64_t master_size(const Plan& plan) {
  return size_of(zero_master_dtype(plan)).count();
}

std::int64_t largest_group(const ZeroBuffer& buffer) {
  std::int64_t most = 0;
  for (std::size_t g = 0; g < buffer.num_groups(); ++g) most = std::max(most, buffer.group_elements(g));
  return most;
}

std::int64_t part_of(const ShardedParameter& p, const ZeroBuffer& buffer) {
  return part_of(p.elements, CutBy::Elements, buffer.ranks).chunk;
}

std::int64_t item_of(const ShardedParameter& p, const Layout& layout) {
  return size_of(layout.parameter_dtype[p.parameter]).count();
}

// Its part is not too small for a file.
bool is_large(const ShardedParameter& p, const Layout& layout, const Plan& plan) {
  return part_of(p, layout.zero) * item_of(p, layout) >= smallest_file(plan);
}

}  // namespace

bool uses_drive(const Plan& plan) {
  return traits_of(plan).zero_stage == 3 && plan.cpu_offload && (plan.zero.nvme.optimizer || plan.zero.nvme.parameters);
}

std::int64_t elements_of_file(std::int64_t elements, std::int64_t item, const Plan& plan) {
  const std::int64_t multiple = kPiece * plan.zero.nvme.intra_op_parallelism / item;
  return (elements + multiple - 1) / multiple * multiple;
}

std::int64_t file_bytes(const ShardedParameter& p, const Layout& layout, const Plan& plan) {
  const std::int64_t item = item_of(p, layout);
  return item * elements_of_file(part_of(p, layout.zero), item, plan);
}

std::int64_t smallest_file(const Plan& plan) {
  return std::max(kMostInMemory, plan.zero.nvme.block_size);
}

std::vector<bool> groups_on_drive(const ZeroBuffer& buffer, const Plan& plan) {
  std::vector<bool> on_drive(buffer.num_groups(), false);
  if (!uses_drive(plan) || !plan.zero.nvme.optimizer) return on_drive;
  for (std::size_t g = 0; g < on_drive.size(); ++g) {
    on_drive[g] = master_size(plan) * buffer.group_elements(g) >= smallest_file(plan);
  }
  return on_drive;
}

std::size_t groups_in_memory(const ZeroBuffer& buffer, const Plan& plan) {
  const std::int64_t most = std::min(buffer.begins.back(), plan.zero.nvme.max_in_cpu);
  std::size_t groups = 0;
  while (groups < buffer.num_groups() && buffer.begins[buffer.group_begins[groups + 1]] <= most) ++groups;
  return groups;
}

std::vector<bool> parameters_on_drive(const Layout& layout, const Plan& plan) {
  std::vector<bool> on_drive(layout.parameter_dtype.size(), false);
  if (!uses_drive(plan) || !plan.zero.nvme.parameters) return on_drive;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      on_drive[p.parameter] = is_large(p, layout, plan);
    }
  }
  const std::size_t in_memory = layout.zero.group_begins[groups_in_memory(layout.zero, plan)];
  for (std::size_t i = 0; i < in_memory; ++i) on_drive[layout.zero.parameters[i]] = false;
  return on_drive;
}

namespace {

/// [num parameters] Of parameters that no unit has, 0.
std::vector<std::int64_t> elements_of_all(const Layout& layout) {
  std::vector<std::int64_t> elements(layout.parameter_dtype.size(), 0);
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) elements[p.parameter] = p.elements;
  }
  return elements;
}

// Each parameter's part of a sub-group in the buffer, in whole pieces.
std::int64_t pieces_of(const ZeroBuffer& buffer, const Plan& plan, std::size_t g) {
  const std::int64_t item = size_of(buffer.dtype).count();
  std::int64_t elements = 0;
  for (std::size_t i = buffer.group_begins[g]; i < buffer.group_begins[g + 1]; ++i) {
    elements += elements_of_file(buffer.begins[i + 1] - buffer.begins[i], item, plan);
  }
  return item * elements;
}

}  // namespace

std::int64_t parameter_write_buffer(const Layout& layout, const Plan& plan) {
  const ZeroBuffer& buffer = layout.zero;
  if (!uses_drive(plan) || !plan.zero.nvme.parameters) return 0;
  if (groups_in_memory(buffer, plan) == buffer.num_groups()) return 0;
  std::size_t largest = 0;
  for (std::size_t g = 1; g < buffer.num_groups(); ++g) {
    if (buffer.group_elements(g) > buffer.group_elements(largest)) largest = g;
  }
  // DeepSpeed makes it for whole parameters, and not for the rank's parts.
  const std::int64_t item = size_of(buffer.dtype).count();
  const std::vector<std::int64_t> elements = elements_of_all(layout);
  std::int64_t whole = 0;
  for (std::size_t i = buffer.group_begins[largest]; i < buffer.group_begins[largest + 1]; ++i) {
    whole += elements_of_file(elements[buffer.parameters[i]], item, plan);
  }
  return item * whole;
}

std::int64_t optimizer_swap_buffers(const ZeroBuffer& buffer, const Plan& plan) {
  if (!uses_drive(plan) || !plan.zero.nvme.optimizer) return 0;
  const std::int64_t item = master_size(plan);
  return plan.zero.nvme.buffer_count * item * elements_of_file(largest_group(buffer), item, plan);
}

std::int64_t parameter_swap_buffers(const Layout& layout, const Plan& plan) {
  if (!uses_drive(plan) || !plan.zero.nvme.parameters) return 0;
  const std::int64_t item = size_of(layout.zero.dtype).count();
  return plan.zero.nvme.param_buffer_count * item * elements_of_file(plan.zero.nvme.param_buffer_size, item, plan);
}

namespace {

// A pass over the sub-groups: each has so many tensors in files, and the optimizer makes so many outside of them.
struct SwapPass {
  std::int64_t read = 0;
  std::int64_t made = 0;
};

std::int64_t needed_by(const SwapPass& pass, std::int64_t groups, const NvmeOptions& nvme) {
  std::int64_t most = 0;
  std::int64_t next = 0;  // Buffers of what is read ahead,
  std::int64_t last = 0;  // and of what is still written.
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t own = pass.read;
    next = nvme.pipeline_read && g + 1 < groups ? pass.read : 0;
    most = std::max(most, own + next + last);
    last = own + pass.made;
    most = std::max(most, last + next);
    if (!nvme.pipeline_write || g + 1 == groups) last = 0;
  }
  return most;
}

}  // namespace

std::int64_t needed_optimizer_buffers(const ZeroBuffer& buffer, const Plan& plan) {
  const std::vector<bool> on_drive = groups_on_drive(buffer, plan);
  const std::int64_t groups = std::count(on_drive.begin(), on_drive.end(), true);
  const NvmeOptions& nvme = plan.zero.nvme;
  const std::int64_t moments = num_moments(plan.optimizer);
  const bool is_pipelined = nvme.pipeline_read || nvme.pipeline_write;
  // Without a pipeline moments go out one after the other, by any buffer.
  const SwapPass first{.read = 2, .made = is_pipelined ? moments : std::min<std::int64_t>(1, moments)};
  return std::max(needed_by(first, groups, nvme), needed_by({.read = 2 + moments}, groups, nvme));
}

std::int64_t gradient_elements_on_drive(std::int64_t elements, const Plan& plan) {
  const std::int64_t item = master_size(plan);
  if (item * elements < smallest_file(plan)) return 0;
  const std::int64_t multiple = elements_of_file(1, item, plan);
  return elements / multiple * multiple;
}

namespace {

/// [num parameters] Elements of the gradient of this rank's part, and of others 0: those at the end have less of it.
std::vector<std::int64_t> reduced_elements(const Layout& layout) {
  std::vector<std::int64_t> all(layout.parameter_dtype.size(), 0);
  const std::vector<std::int64_t> elements = elements_of_all(layout);
  for (const GradientBucket& bucket : layout.buckets) {
    for (const int p : bucket.parameters) {
      all[p] = part_of(elements[p], CutBy::Elements, layout.zero.ranks, layout.rank).local;
    }
  }
  return all;
}

}  // namespace

DriveUse drive_use(const Layout& layout, const Plan& plan, const Schedule& steady) {
  DriveUse use;
  if (!uses_drive(plan)) return use;
  const ZeroBuffer& buffer = layout.zero;
  const std::vector<bool> on_drive = groups_on_drive(buffer, plan);
  const std::vector<std::int64_t> reduced = reduced_elements(layout);
  const std::int64_t item = master_size(plan);
  for (std::size_t g = 0; g < on_drive.size(); ++g) {
    if (!on_drive[g]) continue;
    const std::int64_t states =
        (1 + num_moments(plan.optimizer)) * item * elements_of_file(buffer.group_elements(g), item, plan);
    use.kept += states;
    use.written += states;
    for (std::size_t i = buffer.group_begins[g]; i < buffer.group_begins[g + 1]; ++i) {
      use.gradients += item * gradient_elements_on_drive(reduced[buffer.parameters[i]], plan);
    }
  }
  use.kept += use.gradients;
  use.written += use.gradients;
  use.read = use.kept;
  const std::vector<bool> parameters = parameters_on_drive(layout, plan);
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      const std::int64_t bytes = file_bytes(p, layout, plan);
      // The files of those that went back to host memory stay where they are.
      if (plan.zero.nvme.parameters && is_large(p, layout, plan)) use.kept += bytes;
      const bool is_trained = std::binary_search(buffer.parameters.begin(), buffer.parameters.end(), p.parameter);
      if (parameters[p.parameter] && is_trained) use.written += bytes;
    }
  }
  use.fetched = steady.drive.read;
  return use;
}

namespace {

void check_parameter_buffers(const Layout& layout, const Plan& plan, const Schedule& first, const Schedule& steady,
                             Errors& errors) {
  const NvmeOptions& nvme = plan.zero.nvme;
  std::int64_t largest = 0;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      if (!is_large(p, layout, plan)) continue;
      largest = std::max(largest, part_of(p, layout.zero));
    }
  }
  if (largest > nvme.param_buffer_size) {
    errors.push_back(
        {"/zero/nvme/param_buffer_size",
         fmt::format("A rank's part of a parameter has {} elements, and a buffer {}.", largest, nvme.param_buffer_size),
         fmt::format("Write {} or more.", largest)});
  }
  const std::int64_t needed = std::max(first.drive.buffers, steady.drive.buffers);
  if (first.drive.asks_twice || steady.drive.asks_twice) {
    errors.push_back({"/zero/prefetch_bucket_size",
                      "DeepSpeed reads a parameter ahead for two uses of it at once, and ends with an error.",
                      "Write a smaller number, or 0."});
  } else if (needed > nvme.param_buffer_count) {
    errors.push_back({"/zero/nvme/param_buffer_count",
                      fmt::format("{} parts of parameters are in buffers at once, and there are {} of these.", needed,
                                  nvme.param_buffer_count),
                      fmt::format("Write {}, or a smaller max_live_parameters and max_reuse_distance.", needed)});
  }
  const std::int64_t space = parameter_write_buffer(layout, plan);
  for (std::size_t g = groups_in_memory(layout.zero, plan); g < layout.zero.num_groups(); ++g) {
    if (pieces_of(layout.zero, plan, g) <= space) continue;
    errors.push_back({"/zero/sub_group_size",
                      "DeepSpeed writes a sub-group's parameters by a buffer that is made for another one, and here it "
                      "is too small.",
                      "Write another number."});
    break;
  }
}

}  // namespace

Errors check_drive(const Layout& layout, const Plan& plan, const Schedule& first, const Schedule& steady) {
  Errors errors;
  const NvmeOptions& nvme = plan.zero.nvme;
  if (nvme.optimizer) {
    const std::int64_t needed = needed_optimizer_buffers(layout.zero, plan);
    if (needed > nvme.buffer_count) {
      errors.push_back(
          {"/zero/nvme/buffer_count",
           fmt::format("The optimizer needs {} buffers at once, and there are {}.", needed, nvme.buffer_count),
           fmt::format("Write {} or more.", needed)});
    }
  }
  if (nvme.parameters) check_parameter_buffers(layout, plan, first, steady, errors);
  return errors;
}

Errors check_nvme(const Plan& plan) {
  Errors errors;
  const auto wrong = [&](std::string where, std::string what, std::string hint) {
    errors.push_back({"zero/nvme" + std::move(where), std::move(what), std::move(hint)});
  };
  const NvmeOptions& nvme = plan.zero.nvme;
  if (nvme == NvmeOptions{} || traits_of(plan).zero_stage < 3)
    return errors;  // For other stages it is refused as a whole.
  if (!nvme.optimizer && !nvme.parameters) {
    wrong("", "Nothing is on the drive.", "Write true for optimizer or for parameters, or leave nvme out.");
    return errors;
  }
  if (!plan.cpu_offload) {
    wrong("", "A drive is predicted only with offload_optimizer.", "Write true for cpu_offload.");
  } else if (nvme.parameters && !plan.zero.offload_param) {
    wrong("/parameters", "Parameters on the drive need offload_param.", "Write true for zero/offload_param.");
  }
  if (nvme.optimizer && zero_master_dtype(plan) != Dtype::Float32) {
    wrong("/optimizer",
          "With bf16_master_weights_and_grads DeepSpeed ends with an error in the first step: its read buffer is fp32.",
          "Write float32 for parameter_dtype and bfloat16 for param_dtype and reduce_dtype.");
  }
  if (plan.zero.offload_ratio != 1) {
    wrong("", "A drive is predicted with all of the optimizer on the host.", "Leave offload_ratio out.");
  }
  if (nvme.path.empty()) wrong("/path", "A folder on the drive is missing.", "Write one.");
  return errors;
}

}  // namespace fsdp
