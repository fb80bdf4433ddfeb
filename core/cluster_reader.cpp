#include "core/cluster_reader.h"

#include <fmt/format.h>

#include <charconv>

#include "core/cluster_library.h"
#include "core/foreign_files.h"
#include "core/parse_units.h"

namespace fsdp {

namespace {

constexpr std::string_view kClusterFormat = "1.0";

enum class FileKind { Gpu, Cluster };
constexpr EnumName<FileKind> kFileKinds[] = {{FileKind::Gpu, "gpu"}, {FileKind::Cluster, "cluster"}};
constexpr EnumTable<FileKind> kFileKindNames{"kind of file", kFileKinds};

/// "7.5", which is 75 in the code.
struct ComputeCapability {
  int value = 0;
};

bool read_json(const JsonValue& value, ComputeCapability& out, JsonErrors& errors) {
  std::string text;
  if (!read_json(value, text, errors)) return false;
  const std::size_t point = text.find('.');
  const auto is_digits = [](std::string_view part) {
    return !part.empty() && part.size() <= 3 && part.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const std::string_view whole = text;
  if (point == std::string::npos || !is_digits(whole.substr(0, point)) || !is_digits(whole.substr(point + 1)) ||
      text.size() - point != 2) {
    return errors.add(value, fmt::format("{} is not a compute capability.", json_quoted(text)), "Write it as \"8.0\".");
  }
  std::from_chars(text.data(), text.data() + point, out.value);
  out.value = out.value * 10 + (text.back() - '0');
  return true;
}

/// A share of a peak: nothing reaches more than all of it, and a share of zero would take forever.
constexpr RealRange kShare{0.01, 1};

/// What every file begins with. Adds an error when it is of another kind or of another version.
void read_head(ObjectReader& object, FileKind expected) {
  object.ignore("$schema");
  std::string version;
  if (object.required("format_version", version) && version != kClusterFormat)
    object.fail("format_version", fmt::format("Format version {} is not known.", json_quoted(version)),
                fmt::format("Write \"{}\".", kClusterFormat));
  FileKind kind = expected;
  if (object.required("kind", kind, kFileKindNames) && kind != expected)
    object.fail("kind", fmt::format("This file describes a {}.", name_of(kFileKindNames, kind)),
                fmt::format("A file of kind \"{}\" belongs here.", name_of(kFileKindNames, expected)));
}

}  // namespace

// Outside of the unnamed namespace, where the calls in templates would not find them.

template <class T, class... Args>
static bool read_json(const JsonValue& value, Sourced<T>& out, JsonErrors& errors, const Args&... args) {
  ObjectReader object(value, errors);
  object.required("value", out.value, args...);
  object.required("provenance", out.provenance, kProvenanceNames);
  object.required("source", out.source);
  return object.finish();
}

static bool read_json(const JsonValue& value, IntraNodeLink& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("kind", out.kind, kIntraLinkNames);
  object.required("bandwidth", out.bandwidth);
  object.required("latency", out.latency);
  object.optional("bus_bandwidth", out.bus_bandwidth);
  return object.finish();
}

static bool read_json(const JsonValue& value, HostLink& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("pcie_generation", out.pcie_generation, IntegerRange{1, 7});
  object.required("pcie_lanes", out.pcie_lanes, IntegerRange{1, 32});
  object.required("bandwidth", out.bandwidth);
  return object.finish();
}

static bool read_json(const JsonValue& value, Network& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("kind", out.kind, kNetworkNames);
  object.required("nic_bandwidth", out.nic_bandwidth);
  object.optional("gpus_per_nic", out.gpus_per_nic, IntegerRange{1, kMostGpusPerNode});
  object.optional("nic_near_gpu", out.nic_near_gpu);
  object.optional("sharp", out.sharp);
  object.required("latency", out.latency);
  return object.finish();
}

static bool read_json(const JsonValue& value, Gpu& gpu, JsonErrors& errors) {
  ObjectReader object(value, errors);
  read_head(object, FileKind::Gpu);
  ComputeCapability capability;
  object.required("name", gpu.name);
  object.optional("aliases", gpu.aliases);
  object.required("architecture", gpu.architecture);
  if (object.required("compute_capability", capability)) gpu.compute_capability = capability.value;
  object.required("sms", gpu.num_sms, IntegerRange{1, 100'000});
  object.required("l2_cache", gpu.l2_cache);
  object.required("shared_memory_per_block", gpu.shared_memory_per_block);
  object.required("shared_memory_per_sm", gpu.shared_memory_per_sm);
  object.required("memory", gpu.memory);
  object.required("usable_memory", gpu.usable_memory);
  object.required("memory_bandwidth", gpu.memory_bandwidth);
  if (const JsonValue* peak = object.required_value("peak")) {
    ObjectReader rates(*peak, errors);
    rates.required("fp32", gpu.fp32);
    rates.optional("tf32", gpu.tf32);
    rates.optional("fp16", gpu.fp16);
    rates.optional("bf16", gpu.bf16);
    rates.finish();
  }
  object.required("achievable_compute", gpu.achievable_compute, kShare);
  object.required("achievable_bandwidth", gpu.achievable_bandwidth, kShare);
  object.optional("achievable_attention", gpu.achievable_attention, kShare);
  object.required("context", gpu.context);
  object.required("intra_node", gpu.intra_node);
  object.required("host_link", gpu.host_link);
  object.required("network", gpu.network);
  return object.finish();
}

namespace {

bool read_gpu_of_cluster(const JsonValue& value, Gpu& gpu, std::span<const Gpu> gpus, JsonErrors& errors) {
  if (value.type == JsonType::Object) return read_json(value, gpu, errors);
  if (!expect_type(value, JsonType::String, "the name of a GPU or a GPU card", errors)) return false;
  Result<Gpu> found = find_gpu(value.text, gpus, "");
  if (!found) return errors.add(value, found.error().front().what, found.error().front().hint);
  gpu = std::move(*found);
  return true;
}

void write_text(JsonWriter& json, const Sourced<int>& figure) {
  json.member("value", figure.value);
}
void write_text(JsonWriter& json, const Sourced<double>& figure) {
  json.member("value", figure.value);
}
void write_text(JsonWriter& json, const Sourced<Bytes>& figure) {
  json.member("value", exact_size(figure.value));
}
void write_text(JsonWriter& json, const Sourced<Seconds>& figure) {
  json.member("value", exact_time(figure.value));
}
void write_text(JsonWriter& json, const Sourced<BytesPerSecond>& figure) {
  json.member("value", exact_bandwidth(figure.value));
}
void write_text(JsonWriter& json, const Sourced<FlopsPerSecond>& figure) {
  json.member("value", exact_flops_rate(figure.value));
}

template <class T>
void write_figure(JsonWriter& json, std::string_view key, const Sourced<T>& figure) {
  json.key(key);
  json.begin_object(JsonLayout::OneLine);
  write_text(json, figure);
  json.member("provenance", name_of(kProvenanceNames, figure.provenance));
  json.member("source", figure.source);
  json.end_object();
}

template <class T>
void write_figure(JsonWriter& json, std::string_view key, const std::optional<Sourced<T>>& figure) {
  if (figure) write_figure(json, key, *figure);
}

void write_head(JsonWriter& json, FileKind kind) {
  json.member("format_version", kClusterFormat);
  json.member("kind", name_of(kFileKindNames, kind));
}

void write_links(JsonWriter& json, const IntraNodeLink& link, const HostLink& host, const Network& network) {
  json.key("intra_node");
  json.begin_object();
  json.member("kind", name_of(kIntraLinkNames, link.kind));
  write_figure(json, "bandwidth", link.bandwidth);
  write_figure(json, "latency", link.latency);
  write_figure(json, "bus_bandwidth", link.bus_bandwidth);
  json.end_object();
  json.key("host_link");
  json.begin_object();
  json.member("pcie_generation", host.pcie_generation);
  json.member("pcie_lanes", host.pcie_lanes);
  write_figure(json, "bandwidth", host.bandwidth);
  json.end_object();
  json.key("network");
  json.begin_object();
  json.member("kind", name_of(kNetworkNames, network.kind));
  write_figure(json, "nic_bandwidth", network.nic_bandwidth);
  if (network.gpus_per_nic != kMostGpusPerNode) json.member("gpus_per_nic", network.gpus_per_nic);
  json.member("nic_near_gpu", network.nic_near_gpu);
  json.member("sharp", network.sharp);
  write_figure(json, "latency", network.latency);
  json.end_object();
}

}  // namespace

Result<Gpu> read_gpu(const JsonDocument& document) {
  JsonErrors errors(document);
  Gpu gpu;
  read_json(document.root, gpu, errors);
  return std::move(errors).result(std::move(gpu));
}

bool read_json(const JsonValue& value, Cluster& cluster, JsonErrors& errors, std::span<const Gpu> gpus) {
  ObjectReader object(value, errors);
  cluster = {};
  read_head(object, FileKind::Cluster);
  object.required("name", cluster.name);
  object.optional("aliases", cluster.aliases);
  if (const JsonValue* gpu = object.required_value("gpu")) read_gpu_of_cluster(*gpu, cluster.gpu, gpus, errors);
  object.required("gpus_per_node", cluster.gpus_per_node, IntegerRange{1, kMostGpusPerNode});
  object.optional("nodes", cluster.nodes, IntegerRange{1, kMostNodes});
  object.optional("cpu", cluster.cpu, kCpuVendorNames);
  object.optional("host_memory", cluster.host_memory);
  cluster.intra_node = cluster.gpu.intra_node;
  cluster.host_link = cluster.gpu.host_link;
  cluster.network = cluster.gpu.network;
  const bool has_link = object.optional("intra_node", cluster.intra_node);
  object.optional("host_link", cluster.host_link);
  const bool has_network = object.optional("network", cluster.network);
  object.optional("assumptions", cluster.assumptions);
  const bool good = object.finish();
  if (!has_link && cluster.gpus_per_node > 1) {
    cluster.assumptions.push_back(fmt::format("The GPUs of a node are linked by {}, as is usual for {}.",
                                              describe(cluster.intra_node.kind), cluster.gpu.name));
  }
  if (!has_network && cluster.nodes > 1) {
    cluster.assumptions.push_back(fmt::format("The nodes are linked by {}, as is usual for {}.",
                                              describe(cluster.network.kind), cluster.gpu.name));
  }
  return good;
}

Result<Cluster> read_cluster(const JsonDocument& document, std::span<const Gpu> gpus) {
  JsonErrors errors(document);
  Cluster cluster;
  read_json(document.root, cluster, errors, gpus);
  return std::move(errors).result(std::move(cluster));
}

Result<Cluster> read_cluster_file(const std::string& path, std::span<const Gpu> gpus) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  if (auto foreign = recognize_json(document, WantedFile::Cluster)) return tl::unexpected(Errors{*std::move(foreign)});
  return read_cluster(document, gpus);
}

void write_gpu(const Gpu& gpu, JsonWriter& json) {
  json.begin_object();
  write_head(json, FileKind::Gpu);
  json.member("name", gpu.name);
  json.member("aliases", gpu.aliases);
  json.member("architecture", gpu.architecture);
  json.member("compute_capability", fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10));
  write_figure(json, "sms", gpu.num_sms);
  write_figure(json, "l2_cache", gpu.l2_cache);
  write_figure(json, "shared_memory_per_block", gpu.shared_memory_per_block);
  write_figure(json, "shared_memory_per_sm", gpu.shared_memory_per_sm);
  write_figure(json, "memory", gpu.memory);
  write_figure(json, "usable_memory", gpu.usable_memory);
  write_figure(json, "memory_bandwidth", gpu.memory_bandwidth);
  json.key("peak");
  json.begin_object();
  write_figure(json, "fp32", gpu.fp32);
  write_figure(json, "tf32", gpu.tf32);
  write_figure(json, "fp16", gpu.fp16);
  write_figure(json, "bf16", gpu.bf16);
  json.end_object();
  write_figure(json, "achievable_compute", gpu.achievable_compute);
  write_figure(json, "achievable_bandwidth", gpu.achievable_bandwidth);
  write_figure(json, "achievable_attention", gpu.achievable_attention);
  write_figure(json, "context", gpu.context);
  write_links(json, gpu.intra_node, gpu.host_link, gpu.network);
  json.end_object();
}

void write_cluster(const Cluster& cluster, JsonWriter& json) {
  json.begin_object();
  write_head(json, FileKind::Cluster);
  json.member("name", cluster.name);
  json.member("aliases", cluster.aliases);
  json.key("gpu");
  write_gpu(cluster.gpu, json);
  json.member("gpus_per_node", cluster.gpus_per_node);
  json.member("nodes", cluster.nodes);
  json.member("cpu", name_of(kCpuVendorNames, cluster.cpu));
  write_figure(json, "host_memory", cluster.host_memory);
  write_links(json, cluster.intra_node, cluster.host_link, cluster.network);
  json.member("assumptions", cluster.assumptions);
  json.end_object();
}

}  // namespace fsdp
