#include "core/plan/plan_json_zero.h"

#include "core/base/limits.h"
#include "core/base/object_reader.h"

namespace fsdp {

namespace {

void fp16_fields(Fields& fields, Fp16Options& fp16) {
  constexpr IntegerRange kSteps{1, std::int64_t{1} << 40};
  fields.optional("auto_cast", "The engine casts positional floating inputs.", fp16.auto_cast);
  fields.optional("loss_scale", "The loss scale. 0: found while training, by the keys below.", fp16.loss_scale,
                  RealRange{0, 1e30});
  fields.optional("initial_scale_power", "The loss scale begins with 2 to this power.", fp16.initial_scale_power,
                  IntegerRange{0, 100});
  fields.optional("loss_scale_window", "Steps without an overflow after which the scale doubles.",
                  fp16.loss_scale_window, kSteps);
  fields.optional("hysteresis", "Overflows until the scale halves.", fp16.hysteresis, kSteps);
  fields.optional("consecutive_hysteresis", "A step without an overflow counts them from the start.",
                  fp16.consecutive_hysteresis);
  fields.optional("min_loss_scale", "The lowest loss scale.", fp16.min_loss_scale, kSteps);
}

void nvme_fields(Fields& fields, NvmeOptions& nvme) {
  constexpr IntegerRange kBuffers{0, 1 << 20};
  constexpr IntegerRange kElements{0, std::int64_t{1} << 50};
  fields.optional("path", "Folder on the drive.", nvme.path);
  fields.optional("optimizer", "The parameters that the optimizer updates, its states and its gradients are in files.",
                  nvme.optimizer);
  fields.optional("buffer_count", "Page-locked buffers for them, each as large as the largest sub-group.",
                  nvme.buffer_count, kBuffers);
  fields.optional("pipeline_read", "The next sub-group is read while one is updated.", nvme.pipeline_read);
  fields.optional("pipeline_write", "A sub-group is written while the next one is updated.", nvme.pipeline_write);
  fields.optional("parameters", "With offload_param: the rank's parts of parameters are in files, too.",
                  nvme.parameters);
  fields.optional("param_buffer_count", "Page-locked buffers for them: one for each part in use.",
                  nvme.param_buffer_count, kBuffers);
  fields.optional("param_buffer_size", "Elements of each.", nvme.param_buffer_size, kElements);
  fields.optional("max_in_cpu", "Elements of the rank's parts that stay in host memory.", nvme.max_in_cpu, kElements);
  fields.optional("block_size", "In the section aio: bytes of one request. Smaller tensors stay in memory.",
                  nvme.block_size, IntegerRange{1, std::int64_t{1} << 40});
  fields.optional("intra_op_parallelism", "In the section aio: threads that share a request.",
                  nvme.intra_op_parallelism, IntegerRange{1, 1024});
}

}  // namespace

void zero_fields(Fields& fields, ZeroOptions& zero) {
  fields.optional("reduce_bucket_size", "Elements of the buffer in which gradients are reduced.",
                  zero.reduce_bucket_size, IntegerRange{1, std::int64_t{1} << 40});
  fields.optional(
      "overlap_comm",
      "Collectives run on their own streams; ZeRO-1 and 2 reduce from two buffers then. ZeRO-3: defaults to true.",
      zero.overlap_comm);
  constexpr IntegerRange kElements{0, std::int64_t{1} << 50};
  fields.optional("prefetch_bucket_size", "ZeRO-3: elements gathered ahead of the modules that need them.",
                  zero.prefetch_bucket_size, kElements);
  fields.optional("param_persistence_threshold",
                  "ZeRO-3: parameters of no more elements are gathered once a step and stay whole.",
                  zero.param_persistence_threshold, kElements);
  fields.optional("max_live_parameters", "ZeRO-3: nothing is gathered ahead above so many elements.",
                  zero.max_live_parameters, kElements);
  fields.optional("max_reuse_distance", "ZeRO-3: parameters needed again within so many elements stay gathered.",
                  zero.max_reuse_distance, kElements);
  fields.optional("sub_group_size", "ZeRO-3: elements of a rank's part that the optimizer updates at a time.",
                  zero.sub_group_size, IntegerRange{1, std::int64_t{1} << 50});
  fields.optional("hpz_partition_size",
                  "ZeRO-3: ranks, neighbors, that share a second copy of the parameters (ZeRO++); 1: there is none.",
                  zero.hpz_partition_size, kRanks);
  fields.optional("quantized_weights",
                  "ZeRO-3: parameters are gathered in 8 bits (ZeRO++), and compute uses the rounded values.",
                  zero.quantized_weights);
  fields.optional("quantized_gradients",
                  "ZeRO-3 in fp16 over several nodes: gradients are exchanged in 4 bits (ZeRO++), first in each node.",
                  zero.quantized_gradients);
  fields.optional("pin_memory", "With cpu_offload: offloaded host memory is page-locked.", zero.pin_memory);
  fields.optional("offload_param", "ZeRO-3 with cpu_offload: the rank's parts of parameters are on the host, too.",
                  zero.offload_param);
  fields.optional("offload_ratio",
                  "ZeRO-3 with cpu_offload: the share of sub-groups that the host updates, the last ones.",
                  zero.offload_ratio, RealRange{0, 1});
  fields.optional_object("nvme", "ZeRO-3 with cpu_offload: the data on an NVMe drive instead of in host memory.",
                         [&](Fields& inner) { nvme_fields(inner, zero.nvme); });
  fields.optional_object("fp16", "DeepSpeed's section fp16.", [&](Fields& inner) { fp16_fields(inner, zero.fp16); });
}

void write_nvme_members(JsonWriter& writer, const NvmeOptions& nvme) {
  writer.member("path", nvme.path);
  writer.member("optimizer", nvme.optimizer);
  writer.member("buffer_count", nvme.buffer_count);
  writer.member("pipeline_read", nvme.pipeline_read);
  writer.member("pipeline_write", nvme.pipeline_write);
  writer.member("parameters", nvme.parameters);
  writer.member("param_buffer_count", nvme.param_buffer_count);
  writer.member("param_buffer_size", nvme.param_buffer_size);
  writer.member("max_in_cpu", nvme.max_in_cpu);
  writer.member("block_size", nvme.block_size);
  writer.member("intra_op_parallelism", nvme.intra_op_parallelism);
}

void write_fp16_members(JsonWriter& writer, const Fp16Options& fp16) {
  writer.member("auto_cast", fp16.auto_cast);
  writer.member("loss_scale", fp16.loss_scale);
  writer.member("initial_scale_power", fp16.initial_scale_power);
  writer.member("loss_scale_window", fp16.loss_scale_window);
  writer.member("hysteresis", fp16.hysteresis);
  writer.member("consecutive_hysteresis", fp16.consecutive_hysteresis);
  writer.member("min_loss_scale", fp16.min_loss_scale);
}

}  // namespace fsdp
