// Op rules against the allocations of single calls of PyTorch (tests/golden/stub_gpu/ops.txt).

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

struct RecordedCall {
  AllocationCounts forward, backward;
};

std::map<std::string, RecordedCall> read_recorded_calls() {
  std::ifstream file("tests/golden/stub_gpu/ops.txt");
  std::map<std::string, RecordedCall> calls;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, word;
    words >> name >> word;
    RecordedCall& call = calls[name];
    bool backward = false;
    bool gradient_is_next = false;
    while (words >> word) {
      if (word == "|") {
        backward = gradient_is_next = true;
      } else if (word.starts_with("+")) {
        // The first of the backward is the gradient of the output, which the caller made.
        if (!gradient_is_next) ++(backward ? call.backward : call.forward)[std::stoll(word.substr(1))];
        gradient_is_next = false;
      }
    }
  }
  return calls;
}

constexpr Dtype kBf16 = Dtype::BFloat16;
constexpr Dtype kFp32 = Dtype::Float32;

using Write = std::function<BlockValue(BlockBuilder&)>;

struct RecordedOp {
  std::string name;
  std::vector<Value> inputs;
  Write write;
  Dtype dtype = kBf16;
  std::vector<bool> requires_grad = {};
};

void PrintTo(const RecordedOp& op, std::ostream* out) {
  *out << op.name;
}

class RecordedOps : public testing::TestWithParam<RecordedOp> {};

TEST_P(RecordedOps, AllocateWhatPyTorchAllocated) {
  static const std::map<std::string, RecordedCall> golden = read_recorded_calls();
  const RecordedOp& op = GetParam();
  ASSERT_TRUE(golden.contains(op.name));
  BlockBuilder b("op", "Op", op.inputs);
  for (const Value& input : op.inputs) b.input(input.name);
  b.output("y", op.write(b));
  TapedSettings settings;
  settings.rules.activation = op.dtype;
  settings.rules.implementations.rms_norm = RmsNormImplementation::Fused;
  settings.rules.implementations.upcast_logits = false;
  if (op.name.find("eager") != std::string::npos) {
    settings.rules.implementations.attention = AttentionBackend::Eager;
  }
  settings.rules.implementations.repeat_kv = op.name == "proj_flash_rep";
  settings.inputs = op.requires_grad;
  const TapedBlock taped = tape_block(std::move(b), settings);
  EXPECT_EQ(allocations(taped.tape.forward), golden.at(op.name).forward);
  EXPECT_EQ(allocations(taped.tape.backward), golden.at(op.name).backward);
}

Write unary(BlockValue (BlockBuilder::*function)(BlockValue)) {
  return [function](BlockBuilder& b) { return (b.*function)(b.input("x")); };
}

RecordedOp embedding(std::int64_t rows, std::int64_t entries) {
  return {"emb_" + std::to_string(rows) + "_" + std::to_string(entries),
          {{"ids", {rows}, Dtype::Int64}},
          [entries](BlockBuilder& b) { return b.embedding("e", b.input("ids"), entries, 64); }};
}

RecordedOp layer_norm(std::int64_t rows, std::int64_t width) {
  return {"ln_" + std::to_string(rows) + "_" + std::to_string(width), {{"x", {rows, width}}}, [](BlockBuilder& b) {
            return b.layer_norm("n", b.input("x"));
          }};
}

RecordedOp rms_norm(std::int64_t rows) {
  return {"rms_" + std::to_string(rows) + "_128", {{"x", {rows, 128}}}, [](BlockBuilder& b) {
            return b.rms_norm("n", b.input("x"));
          }};
}

struct Heads {
  std::int64_t batch, queries, keys, heads, kv_heads, dim;
};

RecordedOp attention(const std::string& name, const Heads& h, const Shape& mask = {}, Dtype dtype = kBf16,
                     bool causal = true) {
  std::vector<Value> inputs = {{"q", {h.batch, h.queries, h.heads, h.dim}},
                               {"k", {h.batch, h.keys, h.kv_heads, h.dim}},
                               {"v", {h.batch, h.keys, h.kv_heads, h.dim}}};
  if (!mask.empty()) inputs.push_back({"mask", mask});
  const Write write = [has_mask = !mask.empty(), causal](BlockBuilder& b) {
    AttentionOptions options{.causal = causal && !has_mask};
    if (has_mask) options.bias = b.input("mask");
    return b.attention(b.input("q"), b.input("k"), b.input("v"), options);
  };
  std::vector<bool> requires_grad(inputs.size(), true);
  if (!mask.empty()) requires_grad.back() = false;
  return {name, inputs, write, dtype, requires_grad};
}

// A bias that is trained, of each sample or of all.
RecordedOp biased(const std::string& name, std::int64_t batch) {
  RecordedOp op = attention(name, {2, 512, 512, 8, 8, 64}, {batch, 8, 512, 512});
  op.requires_grad.back() = true;
  return op;
}

// q, k, v scaled by one before they are split into heads, so that copies of their gradients are seen.
RecordedOp projected(const std::string& name, std::int64_t kv_heads, const Shape& mask_shape = {},
                     bool trains_mask = false) {
  const bool mask = !mask_shape.empty();
  std::vector<Value> inputs = {{"q", {2, 512, 512}}, {"k", {2, 512, kv_heads * 64}}, {"v", {2, 512, kv_heads * 64}}};
  if (mask) inputs.push_back({"mask", mask_shape});
  const Write write = [kv_heads, mask](BlockBuilder& b) {
    const auto heads = [&](const char* from, std::int64_t count) {
      return b.reshape(b.scale(b.input(from), 1.0), {2, 512, count, 64});
    };
    AttentionOptions options{.causal = !mask};
    if (mask) options.bias = b.input("mask");
    const BlockValue q = heads("q", 8);
    const BlockValue k = heads("k", kv_heads);
    return b.attention(q, k, heads("v", kv_heads), options);
  };
  std::vector<bool> requires_grad(inputs.size(), true);
  if (mask) requires_grad.back() = trains_mask;
  return {name, inputs, write, kBf16, requires_grad};
}

const Shape kMatrix = {64, 1000};
const Shape kCube = {64, 100, 1000};

std::vector<RecordedOp> simple_ops() {
  return {
      {"gelu", {{"x", kMatrix}}, [](BlockBuilder& b) { return b.gelu(b.input("x"), false); }},
      {"dropout", {{"x", kMatrix}}, [](BlockBuilder& b) { return b.dropout("", b.input("x"), 0.1); }},
      {"silu", {{"x", kMatrix}}, unary(&BlockBuilder::silu)},
      {"relu", {{"x", kMatrix}}, unary(&BlockBuilder::relu)},
      {"softmax_f32", {{"x", kMatrix}}, [](BlockBuilder& b) { return b.softmax(b.input("x"), -1); }, kFp32},
      {"mean1", {{"x", kCube}}, [](BlockBuilder& b) { return b.mean(b.input("x"), 1, false); }},
      {"sum1", {{"x", kCube}}, [](BlockBuilder& b) { return b.sum(b.input("x"), 1, false); }},
      {"slice", {{"x", kCube}}, [](BlockBuilder& b) { return b.scale(b.slice(b.input("x"), 1, 0, 50), 1); }},
      {"select", {{"x", kCube}}, [](BlockBuilder& b) { return b.scale(b.select(b.input("x"), 1, 0), 1); }},
      {"expand", {{"x", {64, 1, 1000}}}, [](BlockBuilder& b) { return b.scale(b.expand(b.input("x"), kCube), 1); }},
      {"chunk_cat",
       {{"x", kCube}},
       [](BlockBuilder& b) {
         std::vector<BlockValue> parts = b.split(b.input("x"), 4, 1);
         for (BlockValue& part : parts) part = b.scale(part, 1);
         return b.cat(parts, 1);
       }},
      {"stack",
       {{"x", kMatrix}},
       [](BlockBuilder& b) {
         const BlockValue x = b.input("x");
         const BlockValue once = b.scale(x, 1);
         return b.stack({once, b.scale(x, 2)}, 1);
       }},
      {"pad_reflect", {{"x", {4, 64, 500}}}, [](BlockBuilder& b) { return b.pad(b.input("x"), -1, 504, true); }},
      {"pad_zero", {{"x", {4, 64, 500}}}, [](BlockBuilder& b) { return b.pad(b.input("x"), -1, 504); }},
      {"groupnorm", {{"x", {4, 64, 500}}}, [](BlockBuilder& b) { return b.group_norm("n", b.input("x"), 8); }},
      {"conv1d",
       {{"x", {4, 64, 500}}},
       [](BlockBuilder& b) { return b.conv1d("c", b.input("x"), 128, {.kernel = 3, .padding = 1}); }},
      {"conv2d",
       {{"x", {4, 64, 56, 56}}},
       [](BlockBuilder& b) { return b.conv2d("c", b.input("x"), 128, {.kernel = 3, .padding = 1}); }},
      {"linear_bias",
       {{"x", {512, 256}}},
       [](BlockBuilder& b) { return b.linear("l", b.input("x"), 384, {.bias = true}); }},
      {"mul_broadcast",
       {{"x", {4, 512, 256}}, {"w", {256}}},
       [](BlockBuilder& b) { return b.mul(b.input("x"), b.input("w")); }},
      {"add_broadcast",
       {{"x", {4, 512, 256}}, {"w", {512, 256}}},
       [](BlockBuilder& b) { return b.add(b.input("x"), b.input("w")); }},
      {"mse",
       {{"x", {100, 1000}}, {"y", {100, 1000}}},
       [](BlockBuilder& b) {
         return b.op({.kind = OpKind::MseLoss, .inputs = {b.input("x"), b.input("y")}})[0];
       },
       kBf16,
       {true, false}},
      {"ce_f32",
       {{"x", {100, 1000}}, {"y", {100}, Dtype::Int64}},
       [](BlockBuilder& b) { return b.cross_entropy(b.input("x"), b.input("y"), false); },
       kFp32},
      {"ce_bf16",
       {{"x", {100, 1000}}, {"y", {100}, Dtype::Int64}},
       [](BlockBuilder& b) { return b.cross_entropy(b.input("x"), b.input("y"), false); }},
  };
}

INSTANTIATE_TEST_SUITE_P(Simple, RecordedOps, testing::ValuesIn(simple_ops()));

INSTANTIATE_TEST_SUITE_P(Embeddings, RecordedOps,
                         testing::Values(embedding(3072, 2000), embedding(3073, 2000), embedding(4096, 2000),
                                         embedding(4096, 50000), embedding(8192, 50000), embedding(16384, 50000),
                                         embedding(32768, 2000), embedding(65536, 50000)));

INSTANTIATE_TEST_SUITE_P(Norms, RecordedOps,
                         testing::Values(layer_norm(1024, 256), layer_norm(65536, 256), layer_norm(131072, 256),
                                         layer_norm(65536, 768), rms_norm(1024), rms_norm(65536), rms_norm(262144)));

INSTANTIATE_TEST_SUITE_P(
    Attention, RecordedOps,
    testing::Values(attention("flash_2_512_8_8_64", {2, 512, 512, 8, 8, 64}),
                    attention("flash_2_512_8_8_96", {2, 512, 512, 8, 8, 96}),
                    attention("flash_2_512_8_8_160", {2, 512, 512, 8, 8, 160}),
                    attention("flash_2_512_8_8_80", {2, 512, 512, 8, 8, 80}),
                    attention("flash_8_16_16_8_128", {8, 16, 16, 16, 8, 128}),
                    attention("flash_cross", {4, 448, 1500, 20, 20, 64}, {}, kBf16, false),
                    attention("eff_mask", {2, 512, 512, 8, 8, 64}, {2, 1, 512, 512}),
                    attention("eff_mask_odd", {2, 500, 500, 8, 8, 64}, {2, 1, 500, 500}),
                    attention("eff_f32", {2, 512, 512, 8, 8, 64}, {}, kFp32),
                    attention("eff_f32_128", {2, 512, 512, 8, 8, 128}, {}, kFp32),
                    attention("eff_bf16_128", {2, 512, 512, 8, 8, 128}, {2, 1, 512, 512}),
                    attention("eff_bf16_32", {2, 512, 512, 8, 8, 32}, {2, 1, 512, 512}),
                    attention("eff_long", {1, 1024, 1024, 2, 2, 64}, {1, 1, 1024, 1024}), biased("eff_bias_grad", 2),
                    biased("eff_bias_grad_sum", 1), projected("proj_flash_rep", 2), projected("proj1_flash_rep", 8),
                    projected("proj_eff_rep", 2, {2, 1, 512, 512}), projected("proj1_eff_rep", 8, {2, 1, 512, 512}),
                    projected("proj_eager", 2, {2, 1, 512, 512}), projected("proj1_eager", 8, {2, 1, 512, 512}),
                    projected("proj1_eager_bias", 8, {1, 8, 512, 512}, true)));

}  // namespace
}  // namespace fsdp::simulator
