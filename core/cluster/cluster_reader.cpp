#include "core/cluster/cluster_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/foreign_files.h"
#include "core/base/object_fields.h"
#include "core/base/parse_units.h"
#include "core/cluster/cluster_library.h"

namespace fsdp {

namespace {

constexpr std::string_view kClusterFormat = "1.0";

enum class FileKind { Gpu, Cluster };
constexpr EnumName<FileKind> kFileKinds[] = {{FileKind::Gpu, "gpu"}, {FileKind::Cluster, "cluster"}};
constexpr EnumTable<FileKind> kFileKindNames{"kind of file", kFileKinds};

/// "7.5" in files, 75 in the code.
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

std::string schema_of(ComputeCapability /*value*/) {
  return R"("type": "string", "pattern": "^[0-9]{1,3}\\.[0-9]$")";
}

constexpr NotEmpty kNamed{"There is no name.", "Write one."};
constexpr NotEmpty kWithSource{"There is no source.", "Write the source that was read, or the way of estimation."};

constexpr std::string_view kProvenanceSentences[] = {
    "Measured on a machine of this kind.", "From the maker's data sheet or documentation.",
    "An estimate; the source explains it.", "Given on the command line. Only in plans."};
constexpr std::string_view kLinks[] = {"NVLink through a switch: every pair has the full rate.",
                                       "NVLink without a switch: mesh or bridge.", "PCIe with peer-to-peer copies.",
                                       "PCIe through host memory."};

/// A share of a peak is at most 1, and a share of zero would take forever.
constexpr RealRange kShare{0.01, 1};
constexpr RealRange kPace{0.2, 5};
constexpr RealRange kTimeSpread{1, 10};
constexpr RealRange kSpread{0, 1};

/// The common first keys of every file. Error: another kind of file or another version.
void head_fields(Fields& fields, FileKind expected) {
  static const std::string version = fmt::format(R"("const": "{}")", kClusterFormat);
  fields.ignore("$schema", "The location of this schema, for editors.");
  fields.required_as("format_version", "Version of this format. A reader refuses one that it does not know.", version,
                     [](const JsonValue& value, JsonErrors& errors) {
                       std::string found;
                       if (!read_json(value, found, errors)) return false;
                       return found == kClusterFormat ||
                              errors.add(value, fmt::format("Format version {} is not known.", json_quoted(found)),
                                         fmt::format("Write \"{}\".", kClusterFormat));
                     });
  fields.required_as(
      "kind", "The kind of thing that the file describes.",
      expected == FileKind::Gpu ? R"("const": "gpu")" : R"("const": "cluster")",
      [&](const JsonValue& value, JsonErrors& errors) {
        FileKind kind = expected;
        if (!read_json(value, kind, errors, kFileKindNames)) return false;
        return kind == expected ||
               errors.add(value, fmt::format("This file describes a {}.", name_of(kFileKindNames, kind)),
                          fmt::format("A file of kind \"{}\" belongs here.", name_of(kFileKindNames, expected)));
      });
}

template <class T, class Visit>
bool read_fields(const JsonValue& value, T& out, JsonErrors& errors, Visit visit) {
  ObjectReader object(value, errors);
  Fields fields(object);
  visit(fields, out);
  return object.finish();
}

template <class T, class Visit>
std::string describe_fields(Visit visit) {
  return schema_of_fields([&](Fields& fields) {
    T value;
    visit(fields, value);
  });
}

}  // namespace

// Outside of the unnamed namespace, so that calls in templates find them.

static bool read_json(const JsonValue& value, Provenance& out, JsonErrors& errors) {
  return read_json(value, out, errors, kProvenanceNames);
}
static std::string schema_of(Provenance /*value*/) {
  return schema_reference("provenance");
}

template <class T, class... Args>
static void figure_fields(Fields& fields, Sourced<T>& figure, const Args&... args) {
  fields.required("value", "The figure.", figure.value, args...);
  fields.required("provenance", "The basis of the figure.", figure.provenance);
  fields.required("source", "The source that was read, or the way of estimation.", figure.source, kWithSource);
}

template <class T, class... Args>
static bool read_json(const JsonValue& value, Sourced<T>& out, JsonErrors& errors, const Args&... args) {
  ObjectReader object(value, errors);
  Fields fields(object);
  figure_fields(fields, out, args...);
  return object.finish();
}
template <class T, class... Args>
static std::string schema_of(const Sourced<T>& /*value*/, const Args&... args) {
  return schema_of_fields([&](Fields& fields) {
    Sourced<T> figure;
    figure_fields(fields, figure, args...);
  });
}
static std::string schema_of(const Sourced<Bytes>& /*value*/) {
  return schema_reference("figure_of_size");
}
static std::string schema_of(const Sourced<BytesPerSecond>& /*value*/) {
  return schema_reference("figure_of_bandwidth");
}
static std::string schema_of(const Sourced<FlopsPerSecond>& /*value*/) {
  return schema_reference("figure_of_flops_rate");
}
static std::string schema_of(const Sourced<Seconds>& /*value*/) {
  return schema_reference("figure_of_time");
}

static void link_fields(Fields& fields, IntraNodeLink& link) {
  fields.required("kind", "The kind of link.", link.kind, DescribedNames{kIntraLinkNames, kLinks});
  fields.required("bandwidth", "Nominal bandwidth of one GPU, per direction.", link.bandwidth);
  fields.required("latency", "The latency of one hop.", link.latency);
  fields.optional("bus_bandwidth", "Bus bandwidth, as nccl-tests defines it, that large collectives reach.",
                  link.bus_bandwidth);
}

static void host_fields(Fields& fields, HostLink& link) {
  fields.required("pcie_generation", "Generation of PCIe.", link.pcie_generation, IntegerRange{1, 7});
  fields.required("pcie_lanes", "Lanes of PCIe.", link.pcie_lanes, IntegerRange{1, 32});
  fields.required("bandwidth", "Nominal, per direction.", link.bandwidth);
}

static void nccl_fields(Fields& fields, NcclSettings& nccl) {
  fields.optional("version", "NCCL's version: 2.27.5. Defaults to the newest that is known.", nccl.version);
  fields.optional("algorithms", "NCCL_ALGO: \"Ring,Tree\", \"^NVLS\", \"allreduce:Tree;allgather:Ring\".",
                  nccl.algorithms);
  fields.optional("protocols", "NCCL_PROTO, in the same way.", nccl.protocols);
}

static void network_fields(Fields& fields, Network& network) {
  fields.required("kind", "The kind of network.", network.kind, kNetworkNames);
  fields.required("nic_bandwidth",
                  "The bandwidth of one NIC per direction, or of all NICs that one GPU owns, together.",
                  network.nic_bandwidth);
  fields.optional("gpus_per_nic", "The GPUs of a node that share one NIC. Defaults to all of them.",
                  network.gpus_per_nic, IntegerRange{1, kMostGpusPerNode});
  fields.optional("nic_near_gpu", "NIC and GPU under one PCIe switch (GPUDirect).", network.nic_near_gpu);
  fields.optional("sharp", "The switches reduce (NCCL's CollNet plugin).", network.sharp);
  fields.required("latency", "The latency of one hop.", network.latency);
}

// A link in a file inherits nothing from the card's own.
static bool read_json(const JsonValue& value, IntraNodeLink& out, JsonErrors& errors) {
  out = {};
  return read_fields(value, out, errors, link_fields);
}
static std::string schema_of(const IntraNodeLink& /*value*/) {
  return schema_reference("intra_node");
}

static bool read_json(const JsonValue& value, HostLink& out, JsonErrors& errors) {
  out = {};
  return read_fields(value, out, errors, host_fields);
}
static std::string schema_of(const HostLink& /*value*/) {
  return schema_reference("host_link");
}

static bool read_json(const JsonValue& value, Network& out, JsonErrors& errors) {
  out = {};
  return read_fields(value, out, errors, network_fields);
}
static std::string schema_of(const Network& /*value*/) {
  return schema_reference("network");
}

static bool read_json(const JsonValue& value, NcclSettings& out, JsonErrors& errors) {
  out = {};
  if (!read_fields(value, out, errors, nccl_fields)) return false;
  const Result<NcclRules> rules = nccl_rules(out);
  if (rules) return true;
  for (const Error& error : rules.error()) errors.add(value, error.what, error.hint);
  return false;
}
static std::string schema_of(const NcclSettings& /*value*/) {
  return schema_reference("nccl");
}

static void rate_fields(Fields& fields, Gpu& gpu) {
  fields.required("fp32", "Dense peak in fp32.", gpu.fp32);
  fields.optional("tf32", "Dense peak in tf32.", gpu.tf32);
  fields.optional("fp16", "Dense peak in fp16.", gpu.fp16);
  fields.optional("bf16", "Dense peak in bf16.", gpu.bf16);
  fields.optional("fp8", "Dense peak in 8-bit floats.", gpu.fp8);
}

static void gpu_fields(Fields& fields, Gpu& gpu) {
  head_fields(fields, FileKind::Gpu);
  ComputeCapability capability;
  fields.required("name", "The maker's name for it.", gpu.name, kNamed);
  fields.optional("aliases", "Other names that users and drivers have for it.", gpu.aliases, kNamed);
  fields.required("architecture", "Family of the chip.", gpu.architecture, kNamed);
  if (fields.required("compute_capability", {"CUDA's compute capability: decides which kernels run.", R"(["8.0"])"},
                      capability)) {
    gpu.compute_capability = capability.value;
  }
  fields.required("sms", "Number of streaming multiprocessors.", gpu.num_sms, IntegerRange{1, 100'000});
  fields.required("l2_cache", "Size of the L2 cache.", gpu.l2_cache);
  fields.required("shared_memory_per_block", "The most shared memory that one thread block may ask for.",
                  gpu.shared_memory_per_block);
  fields.required("shared_memory_per_sm", "Shared memory of one multiprocessor.", gpu.shared_memory_per_sm);
  fields.required("memory", "Total device memory as the driver reports it, not the label.", gpu.memory);
  fields.required("usable_memory",
                  "The memory that one process may allocate, its CUDA context included: the total of cudaMemGetInfo.",
                  gpu.usable_memory);
  fields.required("memory_bandwidth", "Nominal bandwidth of the device memory.", gpu.memory_bandwidth);
  fields.required_as("peak", "Dense peak rates of matrix products. Missing: the hardware has no such mode.",
                     R"("allOf": [{"$ref": "#/definitions/peak"}])", [&](const JsonValue& value, JsonErrors& errors) {
                       return read_fields(value, gpu, errors, rate_fields);
                     });
  fields.required("achievable_compute",
                  "The share of a peak rate that matrix products and convolutions of a training step reach.",
                  gpu.achievable_compute, kShare);
  fields.required("achievable_bandwidth",
                  "The share of the memory bandwidth that the other kernels of a training step reach.",
                  gpu.achievable_bandwidth, kShare);
  fields.optional("achievable_attention",
                  "The share of a peak rate that fused attention reaches. Defaults to 0.65 of achievable_compute.",
                  gpu.achievable_attention, kShare);
  fields.optional("achievable_fp32",
                  "The share of the fp32 rate that matrix products reach without TF32. Defaults to achievable_compute.",
                  gpu.achievable_fp32, kShare);
  fields.optional(
      "pace_16_bit",
      "The time of kernels in fp16 and bf16 over the time by the shares: 1.1 is a tenth more. Defaults to 1.",
      gpu.pace_16_bit, kPace);
  fields.optional("pace_tf32", "The same in fp32 with TF32. Defaults to 1.", gpu.pace_tf32, kPace);
  fields.optional("time_spread",
                  "Nine of ten published steps of such cards take at most so many times more, or less, than predicted. "
                  "Missing: a wide range is printed.",
                  gpu.time_spread, kTimeSpread);
  fields.required("context", "The memory of one process's CUDA context with PyTorch loaded.", gpu.context);
  fields.required("intra_node", "The link of a node's GPUs if a cluster names none.", gpu.intra_node);
  fields.required("host_link", "The link to the host if a cluster names none.", gpu.host_link);
  fields.required("network", "The network if a cluster names none.", gpu.network);
}

static bool read_json(const JsonValue& value, Gpu& gpu, JsonErrors& errors) {
  return read_fields(value, gpu, errors, gpu_fields);
}

namespace {

bool read_gpu_of_cluster(const JsonValue& value, Gpu& gpu, std::span<const Gpu> gpus, JsonErrors& errors) {
  if (value.type == JsonType::Object) {
    const bool good = read_json(value, gpu, errors);
    take_measurements(gpu, gpus);
    return good;
  }
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

namespace {

/// The links that the file names; the others are the GPU's.
struct NamedLinks {
  bool intra_node = false;
  bool network = false;
};

void check_ranks(Fields& fields, const std::vector<MachineTables>& machine) {
  for (std::size_t i = 0; i < machine.size() && fields.object() != nullptr; ++i) {
    const auto is_same = [&](const MachineTables& other) { return other.ranks == machine[i].ranks; };
    if (std::none_of(machine.begin(), machine.begin() + static_cast<std::ptrdiff_t>(i), is_same)) continue;
    fields.object()->fail("machine", fmt::format("There are two measurements of {} ranks.", machine[i].ranks),
                          "Leave one of them out.");
  }
}

void cluster_fields(Fields& fields, Cluster& cluster, std::span<const Gpu> gpus, NamedLinks& named) {
  head_fields(fields, FileKind::Cluster);
  fields.required("name", "Its users' name for it.", cluster.name, kNamed);
  fields.optional("aliases", "Other names that users have for it.", cluster.aliases, kNamed);
  fields.required_as("gpu", "The name or alias of a shipped GPU, or a GPU card.",
                     R"("oneOf": [{"type": "string", "minLength": 1}, {"$ref": "#/definitions/gpu"}])",
                     [&](const JsonValue& value, JsonErrors& errors) {
                       return read_gpu_of_cluster(value, cluster.gpu, gpus, errors);
                     });
  fields.required("gpus_per_node", "GPUs of one node, one rank each.", cluster.gpus_per_node,
                  IntegerRange{1, kMostGpusPerNode});
  fields.optional("nodes", "Nodes of the cluster.", cluster.nodes, IntegerRange{1, kMostNodes});
  fields.optional("cpu", "Maker of the host's CPU; NCCL's choice of algorithm depends on it.", cluster.cpu,
                  kCpuVendorNames);
  fields.optional("host_memory", "Memory of one node.", cluster.host_memory);
  fields.optional("nvme_bandwidth", "The rate at which one node reads from its NVMe drives, or writes to them.",
                  cluster.nvme_rate);
  fields.optional("nvme_capacity", "The capacity of one node's NVMe drives.", cluster.nvme_capacity);
  fields.optional("reserved_memory", "Memory of each GPU that other programs take, such as an inference engine.",
                  cluster.reserved_memory);
  fields.optional("node_spread",
                  "Standard deviation of the time that nodes take for the same work, as a share of it. Defaults to "
                  "that of published runs.",
                  cluster.node_spread, kSpread);
  cluster.intra_node = cluster.gpu.intra_node;
  cluster.host_link = cluster.gpu.host_link;
  cluster.network = cluster.gpu.network;
  named.intra_node = fields.optional("intra_node", "The link of a node's GPUs.", cluster.intra_node);
  fields.optional("host_link", "The link of each GPU to its host.", cluster.host_link);
  named.network = fields.optional("network", "The network between the nodes.", cluster.network);
  fields.optional("nccl", "NCCL's settings.", cluster.nccl);
  fields.optional("assumptions", "Assumptions that fill in what was not given, as sentences.", cluster.assumptions);
  std::vector<MachineTables> machine;
  fields.optional("machine", "The measurements of fsdp-plan calibrate, once for each number of ranks.", machine);
  check_ranks(fields, machine);
  cluster.gpu.machine = MeasuredMachine(std::move(machine));
}

}  // namespace

std::string cluster_schema() {
  const std::string provenance = schema_of(Provenance{}, DescribedNames{kProvenanceNames, kProvenanceSentences});
  std::vector<FieldSchema> definitions;
  const auto define = [&](std::string_view name, std::string schema) {
    definitions.push_back({name, std::move(schema)});
  };
  const auto quantities = quantity_schemas();
  for (const auto& [name, schema] : quantities) define(name, schema);
  define("provenance", R"("description": "The basis of a figure.", )" + provenance);
  define("figure_of_size", describe_fields<Sourced<Bytes>>(figure_fields<Bytes>));
  define("figure_of_bandwidth", describe_fields<Sourced<BytesPerSecond>>(figure_fields<BytesPerSecond>));
  define("figure_of_flops_rate", describe_fields<Sourced<FlopsPerSecond>>(figure_fields<FlopsPerSecond>));
  define("figure_of_time", describe_fields<Sourced<Seconds>>(figure_fields<Seconds>));
  define("intra_node", R"("description": "The link that the collectives of one node use.", )" +
                           describe_fields<IntraNodeLink>(link_fields));
  define("host_link", R"("description": "The PCIe link of one GPU to its host, used by offloading.", )" +
                          describe_fields<HostLink>(host_fields));
  define("network", R"("description": "The network between the nodes.", )" + describe_fields<Network>(network_fields));
  define("nccl", R"("description": "NCCL's settings.", )" + describe_fields<NcclSettings>(nccl_fields));
  define("peak", describe_fields<Gpu>(rate_fields));
  define("gpu", describe_fields<Gpu>(gpu_fields));
  define("cluster", describe_fields<Cluster>([](Fields& fields, Cluster& cluster) {
           NamedLinks named;
           cluster_fields(fields, cluster, {}, named);
         }));
  return schema_of_file(
      "cluster", "GPUs and clusters of fsdp-plan",
      "A GPU card (kind \"gpu\") or a cluster of such GPUs (kind \"cluster\"). Every figure names its source.",
      R"("type": "object", "required": ["kind"], "properties": {"kind": {"enum": ["gpu", "cluster"]}},
                           "if": {"properties": {"kind": {"const": "gpu"}}},
                           "then": {"$ref": "#/definitions/gpu"}, "else": {"$ref": "#/definitions/cluster"})",
      definitions);
}

bool read_json(const JsonValue& value, Cluster& cluster, JsonErrors& errors, std::span<const Gpu> gpus) {
  ObjectReader object(value, errors);
  Fields fields(object);
  cluster = {};
  NamedLinks named;
  cluster_fields(fields, cluster, gpus, named);
  const bool good = object.finish();
  if (!named.intra_node && cluster.gpus_per_node > 1) {
    cluster.assumptions.push_back(fmt::format("The GPUs of a node are linked by {}, as is usual for {}.",
                                              describe(cluster.intra_node.kind), cluster.gpu.name));
  }
  if (!named.network && cluster.nodes > 1) {
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
  write_figure(json, "fp8", gpu.fp8);
  json.end_object();
  write_figure(json, "achievable_compute", gpu.achievable_compute);
  write_figure(json, "achievable_bandwidth", gpu.achievable_bandwidth);
  write_figure(json, "achievable_attention", gpu.achievable_attention);
  write_figure(json, "achievable_fp32", gpu.achievable_fp32);
  write_figure(json, "pace_16_bit", gpu.pace_16_bit);
  write_figure(json, "pace_tf32", gpu.pace_tf32);
  write_figure(json, "time_spread", gpu.time_spread);
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
  write_figure(json, "nvme_bandwidth", cluster.nvme_rate);
  write_figure(json, "nvme_capacity", cluster.nvme_capacity);
  write_figure(json, "reserved_memory", cluster.reserved_memory);
  write_figure(json, "node_spread", cluster.node_spread);
  write_links(json, cluster.intra_node, cluster.host_link, cluster.network);
  if (cluster.nccl != NcclSettings{}) {
    json.key("nccl");
    json.begin_object();
    if (!cluster.nccl.version.empty()) json.member("version", cluster.nccl.version);
    if (!cluster.nccl.algorithms.empty()) json.member("algorithms", cluster.nccl.algorithms);
    if (!cluster.nccl.protocols.empty()) json.member("protocols", cluster.nccl.protocols);
    json.end_object();
  }
  json.member("assumptions", cluster.assumptions);
  if (!cluster.gpu.machine.empty()) {
    json.key("machine");
    json.begin_array();
    for (const MachineTables& tables : cluster.gpu.machine.tables()) write_json(tables, json);
    json.end_array();
  }
  json.end_object();
}

}  // namespace fsdp
