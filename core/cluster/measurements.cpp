// Tables of measured times, and the interpolation between their points.
//
// Between two measured sizes the logarithm of a time is linear in that of the size: a power law, which a collective
// follows in the transition from latency to bandwidth. For products and attention the share of the peak rate is
// interpolated, linear in the logarithms of all sizes at once; the time follows from the operations. Outside the grid
// the share of its edge holds. Each file has the error on measured shapes outside its grid.
//
// Sources: scripts/distil_measurements, which lists the parts of each package that it uses; nccl-tests,
// doc/PERFORMANCE.md, for the size of a collective.
//
// Not modeled: waves of tiles and odd sizes between the points of the grid (4353 rows take up to a fifth longer than
// 4352), and the order in which a product reads its matrices: the tables have one.

#include "core/cluster/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <span>

#include "core/base/object_fields.h"
#include "core/cluster/cluster.h"

namespace fsdp {

namespace {

constexpr std::string_view kMeasurementsFormat = "1.0";

constexpr EnumName<MeasuredCollective> kCollectives[] = {{MeasuredCollective::AllGather, "all_gather"},
                                                         {MeasuredCollective::ReduceScatter, "reduce_scatter"},
                                                         {MeasuredCollective::AllReduce, "all_reduce"}};
constexpr EnumTable<MeasuredCollective> kCollectiveNames{"collective", kCollectives};

constexpr NotEmpty kSaid{"There is no text.", "Write its source."};
constexpr IntegerRange kSize{1, std::int64_t{1} << 50};
constexpr RealRange kMicroseconds{1e-3, 1e12};
constexpr RealRange kShareOfPeak{1e-9, 1};
constexpr RealRange kErrors{0, 1e3};

bool rises(const std::vector<std::int64_t>& axis) {
  return axis.size() >= 2 && std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) == axis.end();
}

void axis_field(Fields& fields, std::string_view key, FieldDoc doc, std::vector<std::int64_t>& axis) {
  if (!fields.required(key, doc, axis, kSize) || rises(axis)) return;
  fields.object()->fail(key, "The sizes do not rise.", "Write at least two, each larger than the one before.");
}

void check_count(Fields& fields, std::string_view key, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  fields.object()->fail(key, fmt::format("There are {} values for {} points.", found, wanted),
                        "Write one for each point, the last axis running fastest.");
}

void share_field(Fields& fields, std::string_view doc, std::vector<double>& share, std::size_t points) {
  if (fields.required("share", {doc, {}}, share, kShareOfPeak)) check_count(fields, "share", share.size(), points);
}

void held_back_fields(Fields& fields, HeldBack& held_back) {
  fields.required("shapes", "Their number.", held_back.shapes, IntegerRange{0, 1 << 30});
  fields.required("median", "The median of the errors.", held_back.median, kErrors);
  fields.required("p90", "Nine of ten errors are smaller.", held_back.p90, kErrors);
}

void add_held_back(Fields& fields, HeldBack& held_back) {
  fields.required_object("held_back",
                         "|measured / interpolated - 1| on the measured shapes that are not points of the grid.",
                         [&](Fields& inner) { held_back_fields(inner, held_back); });
}

}  // namespace

static bool read_json(const JsonValue& value, MeasuredTimes& out, JsonErrors& errors);
static std::string schema_of(const MeasuredTimes& value);
static bool read_json(const JsonValue& value, MeasuredAttention& out, JsonErrors& errors);
static std::string schema_of(const MeasuredAttention& value);

namespace {

void times_fields(Fields& fields, MeasuredTimes& times) {
  fields.required("collective", "The collective.", times.collective, kCollectiveNames);
  fields.required("gpus", "The number of GPUs of the node that take part.", times.gpus, IntegerRange{2, 1024});
  fields.required("microseconds", "The time of one call, for each size.", times.microseconds, kMicroseconds);
}

void collectives_fields(Fields& fields, MeasuredCollectives& collectives) {
  fields.required("table", "Its place in the package.", collectives.table, kSaid);
  fields.required("library", "The measured library, with its version.", collectives.library, kSaid);
  fields.required("link", "The link between the GPUs.", collectives.link, kIntraLinkNames);
  fields.required("bandwidth", "Nominal bandwidth of one GPU, per direction.", collectives.bandwidth);
  axis_field(fields, "bytes", "The sizes, each of the whole buffer.", collectives.bytes);
  if (!fields.required("times", "The times, for each collective and number of GPUs.", collectives.times)) return;
  for (const MeasuredTimes& times : collectives.times) {
    check_count(fields, "times", times.microseconds.size(), collectives.bytes.size());
  }
}

void products_fields(Fields& fields, MeasuredProducts& products) {
  fields.required("table", "Its place in the package.", products.table, kSaid);
  fields.required("dtype", "The dtype of the matrices.", products.dtype, kSaid);
  fields.required("peak", "The peak rate that the shares are of.", products.peak);
  axis_field(fields, "m", "Axis: rows of the first matrix.", products.m);
  axis_field(fields, "n", "Axis: columns of the second matrix.", products.n);
  axis_field(fields, "k", "Axis: the dimension that is summed over.", products.k);
  share_field(fields, "The share of the peak rate, [m, n, k].", products.share,
              products.m.size() * products.n.size() * products.k.size());
  fields.required("large", "Median share of products with m >= 2048 and n, k >= 1024.", products.large, kShareOfPeak);
  add_held_back(fields, products.held_back);
}

void attention_fields(Fields& fields, MeasuredAttention& attention) {
  fields.required("table", "Its place in the package.", attention.table, kSaid);
  fields.required("kernels", "The kernels that ran.", attention.kernels, kSaid);
  fields.required("causal", "Whether there is a causal mask; then half of the operations are counted.",
                  attention.causal);
  fields.required("head_size", "The head size of queries, keys and values.", attention.head_size,
                  IntegerRange{1, 4096});
  fields.required("peak", "The peak rate that the shares are of.", attention.peak);
  axis_field(fields, "heads", "Axis: heads times batch.", attention.heads);
  axis_field(fields, "sequence", "Axis: queries, as many as keys.", attention.sequence);
  share_field(fields, "The share of the peak rate, [heads, sequence].", attention.share,
              attention.heads.size() * attention.sequence.size());
  add_held_back(fields, attention.held_back);
}

struct MeasuredPackage {
  std::string name, version, license, copyright;
};

void package_fields(Fields& fields, MeasuredPackage& package) {
  fields.required("name", "The registry's name of it.", package.name, kSaid);
  fields.required("version", "The package's version.", package.version, kSaid);
  fields.required("license", "The license under which the figures may be passed on.", package.license, kSaid);
  fields.required("copyright", "The package's copyright line.", package.copyright, kSaid);
}

void measurements_fields(Fields& fields, Measurements& measurements) {
  fields.required_as("format_version", "Version of this format. A reader refuses one that it does not know.",
                     fmt::format(R"("const": "{}")", kMeasurementsFormat),
                     [](const JsonValue& value, JsonErrors& errors) {
                       std::string found;
                       if (!read_json(value, found, errors)) return false;
                       return found == kMeasurementsFormat ||
                              errors.add(value, fmt::format("Format version {} is not known.", json_quoted(found)),
                                         fmt::format("Write \"{}\".", kMeasurementsFormat));
                     });
  fields.required_as("kind", "The kind of thing that the file describes.", R"("const": "measurements")",
                     [](const JsonValue& value, JsonErrors& errors) {
                       std::string found;
                       if (!read_json(value, found, errors)) return false;
                       return found == "measurements" ||
                              errors.add(value, "This file describes something else.", "Write \"measurements\".");
                     });
  fields.required("gpus", "Names of the cards that the tables are for.", measurements.gpus, kSaid);
  MeasuredPackage package;
  fields.required_object("package", "The source of the figures.",
                         [&](Fields& inner) { package_fields(inner, package); });
  measurements.package = package.name + " " + package.version;
  measurements.license = package.license;
  measurements.copyright = package.copyright;
  fields.optional_object("collectives", "Collectives of one node.",
                         [&](Fields& inner) { collectives_fields(inner, measurements.collectives.emplace()); });
  fields.optional_object("products", "Products of matrices.",
                         [&](Fields& inner) { products_fields(inner, measurements.products.emplace()); });
  fields.optional("attention", "Forward passes of fused attention.", measurements.attention);
}

}  // namespace

static bool read_json(const JsonValue& value, MeasuredTimes& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  times_fields(fields, out);
  return object.finish();
}
static std::string schema_of(const MeasuredTimes& /*value*/) {
  return schema_of_fields([](Fields& fields) {
    MeasuredTimes times;
    times_fields(fields, times);
  });
}
static bool read_json(const JsonValue& value, MeasuredAttention& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  attention_fields(fields, out);
  return object.finish();
}
static std::string schema_of(const MeasuredAttention& /*value*/) {
  return schema_of_fields([](Fields& fields) {
    MeasuredAttention attention;
    attention_fields(fields, attention);
  });
}

Result<Measurements> read_measurements(const JsonDocument& document) {
  JsonErrors errors(document);
  Measurements measurements;
  ObjectReader object(document.root, errors);
  Fields fields(object);
  measurements_fields(fields, measurements);
  object.finish();
  return std::move(errors).result(std::move(measurements));
}

std::string measurements_schema() {
  std::vector<FieldSchema> definitions;
  const auto quantities = quantity_schemas();
  for (const auto& [name, schema] : quantities) definitions.push_back({name, schema});
  return schema_of_file(
      "measurements", "Measurements on a GPU",
      "Times of collectives within a node, and the rates of products and attention, with the package they are from.",
      schema_of_fields([](Fields& fields) {
        Measurements measurements;
        measurements_fields(fields, measurements);
      }),
      definitions);
}

namespace {

/// The place of a size on an axis: after the point `index`, by this part of the way to the next, in logarithms.
struct Place {
  std::size_t index = 0;
  double part = 0;
};

Place place_on(const std::vector<std::int64_t>& axis, double size) {
  const auto above = std::upper_bound(axis.begin(), axis.end(), size,
                                      [](double a, std::int64_t b) { return a < static_cast<double>(b); });
  const auto index = static_cast<std::size_t>(
      std::clamp<std::ptrdiff_t>(above - axis.begin() - 1, 0, static_cast<std::ptrdiff_t>(axis.size()) - 2));
  const auto low = static_cast<double>(axis[index]);
  const auto high = static_cast<double>(axis[index + 1]);
  return {index, std::clamp(std::log(size / low) / std::log(high / low), 0., 1.)};
}

/// The logarithms at the corners around a place, weighted; the last axis runs fastest.
double between(const std::vector<double>& values, std::span<const Place> places, std::span<const std::size_t> sizes) {
  double sum = 0;
  for (unsigned corner = 0; corner < 1U << places.size(); ++corner) {
    double weight = 1;
    std::size_t index = 0;
    for (std::size_t axis = 0; axis < places.size(); ++axis) {
      const bool next = (corner >> axis & 1U) != 0;
      weight *= next ? places[axis].part : 1 - places[axis].part;
      index = index * sizes[axis] + places[axis].index + (next ? 1 : 0);
    }
    if (weight > 0) sum += weight * std::log(values[index]);
  }
  return std::exp(sum);
}

}  // namespace

double measured_share(const MeasuredProducts& products, double m, double n, double k) {
  assert(m > 0 && n > 0 && k > 0);
  const Place places[] = {place_on(products.m, m), place_on(products.n, n), place_on(products.k, k)};
  const std::size_t sizes[] = {products.m.size(), products.n.size(), products.k.size()};
  return between(products.share, places, sizes);
}

double measured_share(const MeasuredAttention& attention, double heads, double sequence) {
  assert(heads > 0 && sequence > 0);
  const Place places[] = {place_on(attention.heads, heads), place_on(attention.sequence, sequence)};
  const std::size_t sizes[] = {attention.heads.size(), attention.sequence.size()};
  return between(attention.share, places, sizes);
}

std::optional<Seconds> measured_time(const MeasuredCollectives& tables, MeasuredCollective collective, int gpus,
                                     std::int64_t bytes) {
  if (bytes < tables.bytes.front() || bytes > tables.bytes.back()) return std::nullopt;
  const auto found = std::find_if(tables.times.begin(), tables.times.end(), [&](const MeasuredTimes& times) {
    return times.collective == collective && times.gpus == gpus;
  });
  if (found == tables.times.end()) return std::nullopt;
  const Place places[] = {place_on(tables.bytes, static_cast<double>(bytes))};
  const std::size_t sizes[] = {tables.bytes.size()};
  return Seconds(1e-6 * between(found->microseconds, places, sizes));
}

}  // namespace fsdp
