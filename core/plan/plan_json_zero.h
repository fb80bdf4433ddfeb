#pragma once

// The keys of a plan file that are DeepSpeed's.

#include "core/base/json_writer.h"
#include "core/base/object_fields.h"
#include "core/plan/plan.h"

namespace fsdp {

/// For the object "zero": reads them, or describes them for the schema.
void zero_fields(Fields& fields, ZeroOptions& zero);

/// The keys of "nvme" inside an object that is open.
void write_nvme_members(JsonWriter& writer, const NvmeOptions& nvme);

/// The keys of "fp16", which are DeepSpeed's own, inside an object that is open.
void write_fp16_members(JsonWriter& writer, const Fp16Options& fp16);

}  // namespace fsdp
