#include "tests/support/hostile_plan.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/base/json_writer.h"
#include "core/cluster/cluster_library.h"
#include "core/frameworks/check_plan.h"
#include "core/plan/plan_file.h"
#include "core/report/report_json.h"
#include "core/report/report_reader.h"
#include "core/spec/model_spec.h"
#include "simulator/predictor.h"

namespace fsdp {

namespace {

/// [begin, end) of a value, and of the member or element that it is.
struct Place {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t member = 0;  // Where its key begins, or the value.
};

// Scans well-formed JSON, and stops where it is not.
class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) {}

  std::vector<Place> scan() {
    value(0);
    return std::move(places_);
  }

 private:
  void skip(std::string_view which) {
    while (at_ < text_.size() && which.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  void string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_ + 1, text_.size());
  }
  bool value(int depth, std::size_t member = std::string::npos) {
    skip(" \n\t");
    if (at_ >= text_.size() || depth > 64) return false;
    const std::size_t begin = at_;
    const char c = text_[at_];
    if (c == '"') {
      string();
    } else if (c == '[' || c == '{') {
      if (!inside(c == '{', depth)) return false;
    } else {
      at_ = std::min(text_.find_first_of(",]} \n", at_), text_.size());
      if (at_ == begin) return false;
    }
    if (depth > 0) places_.push_back({begin, at_, std::min(member, begin)});
    return true;
  }
  bool inside(bool has_keys, int depth) {
    ++at_;
    for (skip(" \n\t"); at_ < text_.size() && text_[at_] != ']' && text_[at_] != '}'; skip(" \n\t,")) {
      const std::size_t member = at_;
      if (has_keys) {
        string();
        skip(" \n\t:");
      }
      if (!value(depth + 1, member)) return false;
    }
    at_ = std::min(at_ + 1, text_.size());
    return true;
  }

  const std::string& text_;
  std::size_t at_ = 0;
  std::vector<Place> places_;
};

const char* const kNumbers[] = {"0",
                                "1",
                                "2",
                                "3",
                                "4",
                                "5",
                                "7",
                                "8",
                                "9",
                                "12",
                                "16",
                                "33",
                                "64",
                                "129",
                                "300",
                                "0.5",
                                "1.5",
                                "-1",
                                "65537",
                                "2147483648",
                                "9007199254740991",
                                "9223372036854775807",
                                "1e300"};

const char* const kOthers[] = {"null",
                               "\"\"",
                               "\"batch\"",
                               "\"hidden\"",
                               "\"*\"",
                               "\"x\"",
                               "\"float32\"",
                               "\"bfloat16\"",
                               "\"float16\"",
                               "\"int64\"",
                               "\"bool\"",
                               "\"full\"",
                               "\"selective\"",
                               "\"none\"",
                               "\"linear\"",
                               "\"add\"",
                               "\"embedding\"",
                               "\"loss\"",
                               "\"attention\"",
                               "\"reshape\"",
                               "\"transpose\"",
                               "\"split\"",
                               "\"cat\"",
                               "\"softmax\"",
                               "\"conv2d\"",
                               "\"decoder_layer\"",
                               "\"eager\"",
                               "\"math\"",
                               "\"fused\"",
                               "\"foreach\"",
                               "\"for_loop\"",
                               "\"sgd\"",
                               "\"adam\"",
                               "\"torchtitan\"",
                               "\"default\"",
                               "\"meta\"",
                               "\"device\"",
                               "\"batch * 1e9\"",
                               "\"{0..3}\"",
                               "\"blocks.{0..1}\"",
                               "[]",
                               "{}",
                               "[0]",
                               "[1, 1, 1, 1, 1, 1]",
                               "[\"hidden\"]",
                               "[\"\"]",
                               "{\"hidden\": \"labels\"}"};

// Mostly of its own kind, so that what comes out is read and goes on.
std::string in_place_of(const std::string& value, const std::string& other, const Choose& choose) {
  const bool is_number = value.front() == '-' || (value.front() >= '0' && value.front() <= '9');
  if (is_number && choose(8) != 0) return kNumbers[choose(std::size(kNumbers))];
  if (value == "true" && choose(4) != 0) return "false";
  if (value == "false" && choose(4) != 0) return "true";
  if (value.front() == '"' && other.front() == '"' && choose(2) == 0) return other;
  return kOthers[choose(std::size(kOthers))];
}

// `{"spec": .., "plan": ..}` of a recorded case.
HostileFiles of_recorded_case(const std::string& line) {
  HostileFiles files;
  std::string frozen = "[]";
  std::string plan;
  for (const Place& place : Scanner(line).scan()) {
    const std::string key = line.substr(place.member, place.begin - place.member);
    const std::string value = line.substr(place.begin, place.end - place.begin);
    if (key == "\"name\":" && files.name.empty()) files.name = value;
    if (key == "\"spec\":") files.spec = value;
    if (key == "\"plan\":") plan = value;
    if (key == "\"frozen\":") frozen = value;
  }
  files.plan = R"({"format_version": "1.0", "model": {"name": "drawn", "file": "spec.json", "frozen": )" + frozen +
               "}, " + plan.substr(1);
  return files;
}

std::string content_of(const std::string& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Rows of blocks are cut to two.
std::string cut_rows(std::string text) {
  for (std::size_t at = text.find("{0.."); at != std::string::npos; at = text.find("{0..", at + 1)) {
    const std::size_t end = text.find('}', at);
    text.replace(at + 4, end - at - 4, "1");
  }
  return text;
}

HostileFiles of_shipped_model(const std::string& name, const std::string& blocks) {
  return {name, cut_rows(content_of("model_specs/" + name + ".json")),
          R"({"format_version": "1.0", "model": {"name": ")" + name +
              R"(", "file": "spec.json", "recipe": "", "dimensions": {"batch": 2}, "trainable": ["*"], "frozen": []},
 "mesh": {"replicate": 2, "shard": 4},
 "units": [{"modules": [")" +
              blocks + R"("], "modules_per_unit": 1, "reshard_after_forward": 2}, {"modules": [""]}],
 "parameter_dtype": "float32",
 "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32", "output_dtype": null,
                     "cast_forward_inputs": true},
 "activation_checkpointing": {"modules": [{"module": ")" +
              blocks + R"(", "mode": "selective"}], "early_stop": true,
                              "every_second_linear": true, "selective_keep": ["linear", "attention"]},
 "cpu_offload": false, "forward_prefetch": 1, "backward_prefetch": 2, "accumulation": 2,
 "sync_every_micro_batch": false,
 "optimizer": {"kind": "adamw", "implementation": "foreach", "weight_decay": 0.01, "clip_grad_norm": 1.0},
 "initialization": "meta",
 "runtime": {"framework": "pytorch", "version": "2.11.0", "flavor": "transformers",
             "implementations": {"attention": "flash", "rms_norm": "fused", "keep_logits": true, "float_logits": true},
             "allocator_settings": "expandable_segments:True"}})"};
}

Result<Cluster> machines_for(const Mesh& mesh) {
  static const Result<ClusterLibrary> library = read_cluster_library("model_specs/clusters");
  if (!library) return tl::unexpected(library.error());
  const std::int64_t ranks = mesh.dp_shard() < 4096 && mesh.dp_replicate() < 4096 ? mesh.world_size() : 8;
  int per_node = 8;
  while (per_node > 1 && (ranks < per_node || ranks % per_node != 0)) --per_node;
  FSDP_TRY(const Gpu gpu, find_gpu("H100 SXM", library->gpus, "gpu"));
  return make_cluster(gpu, per_node, static_cast<int>(std::max<std::int64_t>(1, ranks / per_node)));
}

std::string without_words(const Errors& errors) {
  if (errors.empty()) return "A refusal gives no reason.";
  for (const Error& error : errors) {
    if (error.what.empty()) return "An error has no words.";
    if (error.where.empty()) return "An error has no place: " + to_string(error);
  }
  return "";
}

std::string predict_with(const Plan& plan, Model model) {
  const Result<Cluster> cluster = machines_for(plan.mesh);
  if (!cluster) return without_words(cluster.error());
  simulator::Predictor predictor(std::move(model), *cluster);
  const Result<StepReport> report = predictor.report(plan);
  if (!report) return without_words(report.error());
  if (report->memory.peaks.live < Bytes(0)) return "A peak is below zero.";
  if (report->memory.peaks.reserved < report->memory.peaks.allocated) return "Less is reserved than allocated.";
  const std::string text = to_json(*report, {}, &*cluster);
  const Result<JsonDocument> document = parse_json(text, "report.json");
  if (!document) return "The report is not JSON: " + to_string(document.error().front());
  Result<StepReport> again = read_report(*document);
  if (!again) return "The report cannot be read back: " + to_string(again.error().front());
  again->plan = report->plan;
  if (to_json(*again, {}, &*cluster) != text) return "The report reads back as another.";
  if (!predictor.curves(plan)) return "A plan has a report and no curves.";
  return "";
}

}  // namespace

std::vector<HostileFiles> whole_files() {
  std::vector<HostileFiles> files;
  std::ifstream drawn("tests/golden/oracle/drawn.jsonl");
  for (std::string line; std::getline(drawn, line);) files.push_back(of_recorded_case(line));
  files.push_back(of_shipped_model("llama3_2_1b", "model.layers.{0..1}"));
  files.push_back(of_shipped_model("gpt2", "transformer.h.{0..1}"));
  files.push_back(of_shipped_model("mixtral_8x7b", "model.layers.{0..1}"));
  files.push_back(of_shipped_model("bert_large", "bert.encoder.layer.{0..1}"));
  files.push_back(of_shipped_model("vit_b_16", "encoder.layers.encoder_layer_{0..1}"));
  files.push_back(of_shipped_model("qwen3_tts", "talker.model.layers.{0..1}"));
  files.push_back(of_shipped_model("resnet18", "layer1.{0..1}"));
  files.push_back(of_shipped_model("whisper_large_v3", "model.decoder.layers.{0..1}"));
  return files;
}

HostileFiles whole_capture() {
  return {"a capture", content_of("tests/golden/captured/small_decoder.json"),
          R"({"format_version": "1.0", "model": {"name": "small", "file": "spec.json", "dimensions": {"batch": 2}},
 "mesh": {"replicate": 2, "shard": 4},
 "units": [{"modules": ["model.layers.{0..3}"], "modules_per_unit": 1}, {"modules": [""]}],
 "activation_checkpointing": {"modules": [{"module": "model.layers.{0..1}", "mode": "full"}]},
 "accumulation": 2, "sync_every_micro_batch": false})"};
}

void damage(HostileFiles& files, const Choose& choose) {
  std::string& text = choose(2) == 0 ? files.spec : files.plan;
  const std::vector<Place> places = Scanner(text).scan();
  if (places.empty()) return;
  const Place& place = places[choose(places.size())];
  const Place& other = places[choose(places.size())];
  const std::string copy = text.substr(other.begin, other.end - other.begin);
  switch (choose(8)) {
    case 0:
      text.replace(place.begin, place.end - place.begin, copy);
      return;
    case 1:  // Twice in a row, as elements are.
      text.insert(place.end, "," + text.substr(place.member, place.end - place.member));
      return;
    case 2: {
      const bool has_comma = place.end < text.size() && text[place.end] == ',';
      text.erase(place.member, place.end - place.member + (has_comma ? 1 : 0));
      return;
    }
    default:
      text.replace(place.begin, place.end - place.begin,
                   in_place_of(text.substr(place.begin, place.end - place.begin), copy, choose));
  }
}

std::string predict_hostile(const HostileFiles& files) {
  const Result<ModelSpec> spec = parse_model_spec(files.spec, "spec.json");
  if (!spec) return without_words(spec.error());
  const Result<JsonDocument> document = parse_json(files.plan, "plan.json");
  if (!document) return without_words(document.error());
  const Result<PlanFile> file = read_plan(*document);
  if (!file) return without_words(file.error());
  Result<Model> model = build_model(*spec, workload_of(file->plan));
  if (!model) return without_words(model.error());
  if (const Errors errors = check(file->plan, *model); !errors.empty()) return without_words(errors);
  return predict_with(file->plan, *std::move(model));
}

}  // namespace fsdp
