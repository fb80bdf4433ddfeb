#pragma once

// GPUs and clusters as files: `model_specs/clusters/`, and `--cluster FILE`. The format is that of
// `model_specs/schemas/cluster.schema.json`.

#include <span>
#include <string>

#include "core/base/json_document.h"
#include "core/base/json_writer.h"
#include "core/base/result.h"
#include "core/cluster/cluster.h"

namespace fsdp {

/// Reads a GPU card.
Result<Gpu> read_gpu(const JsonDocument& document);

/// Reads a cluster, whose GPU is a card of its own or the name of one of `gpus`. A missing link defaults to the usual
/// one for the GPU, with a line in `assumptions`.
Result<Cluster> read_cluster(const JsonDocument& document, std::span<const Gpu> gpus);
/// Reads a cluster inside another document, such as a plan file.
bool read_json(const JsonValue& value, Cluster& cluster, JsonErrors& errors, std::span<const Gpu> gpus);
Result<Cluster> read_cluster_file(const std::string& path, std::span<const Gpu> gpus);

/// The JSON Schema of GPU cards and clusters: `fsdp-plan schema cluster` and model_specs/schemas/cluster.schema.json.
std::string cluster_schema();

/// Writes the object that `read_gpu` reads back as the same value. The calls for a file of the library give its bytes.
void write_gpu(const Gpu& gpu, JsonWriter& json);

/// Writes the object that `read_cluster` reads back as the same value, GPU card included, so that a plan is complete.
void write_cluster(const Cluster& cluster, JsonWriter& json);

}  // namespace fsdp
