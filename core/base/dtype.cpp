#include "core/base/dtype.h"

#include <array>

namespace fsdp {

namespace {

struct DtypeName {
  Dtype dtype;
  std::string_view name;
  std::string_view short_name;
  std::string_view other_name;
};

constexpr std::array kDtypes = {
    DtypeName{Dtype::Float64, "float64", "fp64", "double"}, DtypeName{Dtype::Float32, "float32", "fp32", "float"},
    DtypeName{Dtype::BFloat16, "bfloat16", "bf16", "bf16"}, DtypeName{Dtype::Float16, "float16", "fp16", "half"},
    DtypeName{Dtype::Int64, "int64", "i64", "long"},        DtypeName{Dtype::Int32, "int32", "i32", "int"},
    DtypeName{Dtype::Int16, "int16", "i16", "short"},       DtypeName{Dtype::Int8, "int8", "i8", "int8"},
    DtypeName{Dtype::UInt8, "uint8", "u8", "byte"},         DtypeName{Dtype::Bool, "bool", "bool", "bool"},
};

}  // namespace

std::string_view name_of(Dtype dtype) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "unknown";
}

std::optional<Dtype> parse_dtype(std::string_view text) {
  for (const DtypeName& entry : kDtypes) {
    if (text == entry.name || text == entry.short_name || text == entry.other_name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace fsdp
