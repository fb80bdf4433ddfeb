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

/// Reads a cluster, whose GPU is a card of its own or the name of one of `gpus`. Where it says nothing about a link, it
/// has the one that is usual for the GPU, and says so in `assumptions`.
Result<Cluster> read_cluster(const JsonDocument& document, std::span<const Gpu> gpus);
/// Reads a cluster that stands inside another document, as in a plan file.
bool read_json(const JsonValue& value, Cluster& cluster, JsonErrors& errors, std::span<const Gpu> gpus);
Result<Cluster> read_cluster_file(const std::string& path, std::span<const Gpu> gpus);

/// The JSON Schema of GPU cards and clusters: what `fsdp-plan schema cluster` prints and
/// model_specs/schemas/cluster.schema.json holds.
std::string cluster_schema();

/// Writes the object that `read_gpu` reads back as the same value; with the same calls for a file of the library, the
/// same bytes.
void write_gpu(const Gpu& gpu, JsonWriter& json);

/// Writes the object that `read_cluster` reads back as the same value, GPU card included, so that a plan holds all of
/// it.
void write_cluster(const Cluster& cluster, JsonWriter& json);

}  // namespace fsdp
