#pragma once

// The closed vocabulary of the ops of models.
//
// One op kind, three rules: its shape (core/model/op_shapes.h), its saved tensors, temporaries, FLOPs and bytes
// (simulator/ops/op_rules.h), its kernel (the executor). A test walks the enum and fails on a missing rule.
//
// An op describes the computation. Its implementation in a framework (an RMSNorm written out in fp32 or fused, the
// attention backend) is part of the runtime (core/plan/runtime.h).

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

namespace fsdp {

enum class OpKind : std::uint8_t {
  // Dense layers. `parameters` are weight, then bias if there is one.
  Linear,      ///< x [..., in] -> [..., out]. weight [out, in], or [in, out] with `transposed_weight` (GPT-2's Conv1D).
  Embedding,   ///< ids [...] -> [..., width]. weight [num_embeddings, width]. Attribute `padding_idx`.
  Conv1d,      ///< x [batch, in, length] -> [batch, out, length']. weight [out, in / groups, kernel].
  Conv2d,      ///< x [batch, in, height, width] -> [batch, out, ...]. weight [out, in / groups, kernel, kernel].
  Parameter,   ///< () -> the parameter itself as a value (a position table, a class token). A view of its storage.
  Linear4bit,  ///< As Linear with a frozen weight that is packed in four bits [packed, 1] (bitsandbytes). Attributes
               ///< `out_features`, `nested`, `cloned`, `fp4`, and `dtype`: that of the weight before.

  // Normalization. `parameters` are weight, then bias if there is one; empty if not affine. Attribute `eps`.
  RmsNorm,    ///< x [..., width] -> the same shape.
  LayerNorm,  ///< x [..., width] -> the same shape.
  GroupNorm,  ///< x [batch, channels, ...] -> the same shape. Attribute `groups`.
  BatchNorm,  ///< x [batch, channels, ...] -> the same shape, in training mode. Attribute `momentum`.

  // Attention.
  RotaryTable,  ///< position ids [...] -> cos, sin [..., head_dim], in the activations' dtype, or `wide`: in fp32.
                ///< Attribute `rotary`. `by_halves`: cos, sin [..., head_dim / 2].
  Rotary,       ///< q [batch, seq, heads, dim], k [batch, seq, kv_heads, dim], cos, sin -> q, k. Tables narrower than
                ///< a head turn its first numbers (`partial_rotary`); `interleaved`: pairs are neighbors. `by_halves`:
                ///< a cos - b sin next to b cos + a sin for the halves, or the even and odd numbers, a and b of a head.
  Attention,    ///< q [batch, seq, heads, dim], k, v [batch, key_seq, kv_heads, dim] (, additive bias or mask
                ///< [batch or 1, heads or 1, seq, key_seq]) -> [batch, seq, heads * dim]. Attribute `score_scale`. A
                ///< parameter is a sink [heads]: one more score, of no key, in each row (gpt-oss).

  // Linear attention and state spaces, as transformers writes them out in PyTorch's own calls.
  CausalConv1d,    ///< x [batch, seq, channels] -> the same: each channel's convolution over the positions up to its
                   ///< own, then SiLU. weight [channels, 1, kernel], then bias if there is one.
  DecayRate,       ///< x [batch, seq, heads] -> -exp(a) * softplus(x + b) in fp32. Parameters a and b [heads].
  GatedDeltaRule,  ///< mixed [batch, seq, 2 * kv_heads * head_dim + heads * value_dim] (queries, keys and values, each
                   ///< of all heads), decay, beta [batch, seq, heads] -> [batch, seq, heads, value_dim], in chunks of
                   ///< `length` positions. Each query and key serves heads / kv_heads values.
  StateSpace,      ///< mixed [batch, seq, heads * head_dim + 2 * groups * state] (values, and what writes and reads the
                   ///< states, of all heads and groups), step [batch, seq, heads] -> [batch, seq, heads * head_dim] in
                   ///< fp32, in chunks of `length` positions. Parameters: log of the rates, bias of the step, and
                   ///< factor of the values that pass by, [heads] each. `value`: the shortest step.
  GatedRmsNorm,    ///< x [..., width], gate [..., width] -> norm(x) * silu(gate), or norm(x * silu(gate)) with
                   ///< `gate_first`, with a mean for each of `groups` parts of the width. weight [width]. Attribute
                   ///< `eps`.

  // Elementwise. Shapes broadcast; the output has the shape of the first input.
  Silu,
  Gelu,  ///< Exact, or `approximate` (tanh), which autograd treats alike; `written_out` (Hugging Face's
         ///< NewGELUActivation): the tanh form in eight elementwise calls, which save four tensors instead of one.
  Relu,
  Sigmoid,
  Tanh,
  Mul,  ///< Two tensors.
  Add,
  Sub,
  Scale,     ///< By a number: x * c. Attribute `rounded`.
  Softcap,   ///< c * tanh(x / c), as in Gemma-2.
  LigerGlu,  ///< gate, up -> silu(gate) * up, or by GELU's tanh form with `approximate`, in one kernel of Liger.
  LowRank,   ///< y, x -> y + scale * (x a^T) b^T with weights a [r, in] and b [out, r]: NeMo Automodel's adapters, one
             ///< function for autograd around kernels of Triton. Attribute `scale`.
  Dropout,   ///< Attribute `probability`; a no-op at 0.
  Cast,      ///< Attribute `dtype`.
  Detach,    ///< Cuts the gradient; a view.

  // Shape. The first five are views: no memory moves.
  Reshape,     ///< The output shape is given.
  Transpose,   ///< Attributes `dim`, `other_dim`.
  Slice,       ///< Attributes `dim`, `start`, `length`.
  Select,      ///< Attributes `dim`, `start`: one index, the dimension disappears.
  Expand,      ///< The output shape is given.
  Split,       ///< Attribute `dim`: equal parts, one per output (chunk, unbind of a fused projection). Views. With a
               ///< `length`: the first part of that length, and equal ones. With `lengths`: parts of these.
  Contiguous,  ///< A copy in the order of the logical shape.
  Cat,         ///< Attribute `dim`.
  Stack,       ///< Attribute `dim`: the new dimension.
  SetSlice,    ///< x, part -> x, with the range along `dim` from `start` on overwritten by the part, in place.
  KvCache,  ///< keys, values [batch, seq, kv_heads, dim] -> the same. If the runtime fills a cache in training: copies
            ///< in the order [batch, kv_heads, seq, dim], as an empty cache makes them; otherwise the inputs
            ///< themselves.
  Index,    ///< x [..., n, ...], indices -> rows picked along `dim` (advanced indexing; a copy).
  Pad,      ///< Attributes `dim`, `length`: the padded length (zeros or reflection; a copy).

  // Reductions.
  Softmax,  ///< Along `dim`.
  Mean,     ///< Along `dim`, which stays with size 1 if `keep_dim`.
  Sum,      ///< Along `dim`, which stays with size 1 if `keep_dim`.
  Std,  ///< sqrt(max(sum(w * (x - mean)^2), eps)) with inputs x, mean and optional weights w, along `dim` (ECAPA-TDNN's
        ///< pooling).
  MaxPool2d,
  AdaptiveAvgPool2d,  ///< To [batch, channels, length, length].

  // Mixture of experts.
  Router,   ///< scores [tokens, experts] -> weights [tokens, k], indices [tokens, k]: softmax and top-k. Attribute
            ///< `norm_topk_prob`; `wide`: weights in fp32. `sigmoid`: tokens [tokens, hidden] by the parameter weight
            ///< [experts, hidden] in fp32, sigmoids, the choice corrected by the buffer e_score_correction_bias
            ///< [experts] within the `topk_groups` best of `groups`; weights in fp32, times `scale`. With the parameter
            ///< and no `sigmoid`, a softmax in fp32 in place of sigmoids (DeepSeek-V2; `groups` of 0: not by groups).
            ///< With `sigmoid` and no parameter, the scores' sigmoids in fp32, corrected (MiniMax-M2).
            ///< `top_first`:
            ///< top-k of the scores, and a softmax of the k alone (gpt-oss).
  Experts,  ///< x [tokens, hidden], weights, indices -> [tokens, hidden]. Parameters: gate, up, down of each expert in
            ///< turn.
  GroupedExperts,  ///< The same with stacked parameters: gate and up [experts, 2 * inner, hidden], down [experts,
                   ///< hidden, inner]. Each product is one grouped product over the tokens, sorted by expert. With a
  ///< `limit`, those of gpt-oss: parameters bias [experts, 2 * inner], gate and up [experts, hidden, 2 *
  ///< inner], which alternate, bias [experts, hidden], down [experts, inner, hidden]; (up + 1) * gate *
  ///< sigmoid(`scale` * gate) of numbers up to the limit.

  DenseExperts,  ///< x [tokens, hidden], scores [tokens, experts] -> results [experts * tokens, hidden], the inputs of
                 ///< the experts, the same shape, and their factors [tokens, experts]: each token goes through every
                 ///< expert, times the sigmoid of its score, which is 0 for all but the best `experts_per_token`
                 ///< (Llama 4). Parameters: gate and up [experts, hidden, 2 * inner], down [experts, inner, hidden].

  // Ends.
  CrossEntropy,  ///< logits [..., classes], labels [...] -> a scalar. Attribute `shift`: labels are shifted by one
                 ///< first.
  LinearCrossEntropy,  ///< hidden [..., in], labels [...] -> a scalar: the cross entropy of the products with weight
                       ///< [classes, in] (and bias), which the loss makes itself. Attributes `shift`, `softcap`.
  MseLoss,             ///< prediction, target -> a scalar.
  Constant,  ///< () -> a tensor made in the forward pass (a mask, positions). Output shape, `dtype` and `fill`
             ///< given.

  // Captured models.
  Recorded,  ///< A recorded call of the user's own code (core/model/recorded_block.h). Any number of inputs,
             ///< parameters and outputs. Attributes `backward`, `saves`.
};

inline constexpr int kNumOpKinds = static_cast<int>(OpKind::Recorded) + 1;
/// The ops before it have rules, and files may name them.
inline constexpr int kNumRuledOpKinds = static_cast<int>(OpKind::Recorded);

/// snake_case name, as in specs: "rms_norm".
std::string_view name_of(OpKind kind);
std::optional<OpKind> parse_op_kind(std::string_view text);

/// The scan of a linear attention or a state space, which runs in fp32.
bool is_scan(OpKind kind);

/// The router of a mixture, or its experts.
bool is_of_experts(OpKind kind);

/// Products and fused norms: PyTorch refuses an input with another dtype than the weight's.
bool takes_one_dtype(OpKind kind);

/// The scaling of a rotary table's frequencies for sequences longer than in pre-training.
enum class RotaryScaling : std::uint8_t {
  None,
  Llama3,  ///< Divides low frequencies by `factor`, leaves high ones, and interpolates between (Llama 3.1).
  Linear,  ///< Divides all frequencies by `factor` (Gemma 3).
  Yarn,    ///< As Llama3 with a ramp between the dimensions that turn `beta_fast` and `beta_slow` times within
           ///< `original_positions`; cos and sin are times `attention_factor` (gpt-oss, DeepSeek-V3).
};

/// The frequencies of a rotary table: theta^(-2i / head_dim), scaled.
struct RotaryFrequencies {
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::None;
  double factor = 1;
  double low_freq_factor = 1;              ///< A wave longer than original_positions / this is a low frequency,
  double high_freq_factor = 4;             ///< one shorter than original_positions / this a high one.
  std::int64_t original_positions = 8192;  ///< As in pre-training.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;         ///< Yarn: the ends of the ramp are whole dimensions.
  double attention_factor = 1;  ///< Yarn: of cos and sin.

  bool operator==(const RotaryFrequencies&) const = default;
};

/// The value of a constant.
enum class ConstantFill : std::uint8_t {
  Value,            ///< `value` everywhere.
  Positions,        ///< 0, 1, 2, ... along the last dimension.
  CausalMask,       ///< [..., seq, key_seq]: the lowest number of the dtype if key > query, else 0.
  RelativeBuckets,  ///< [seq, key_seq]: T5's bucket of key - query. `num_buckets`, `max_distance`, `bidirectional`.
  WindowMask,       ///< [..., seq, key_seq]: whether query - `length` < key <= query; if it has numbers, 0 for true and
                    ///< the lowest number for false.
  ChunkMask,        ///< [..., seq, key_seq] of booleans: whether key <= query, both in one chunk of `length` tokens.
  DocumentMask,     ///< [..., seq, seq] of booleans: whether key <= query, both in one of the `documents`.
  Rows,             ///< [rows, ...]: row r holds (r / length) * stride + start + r % length: the `length` rows from
                    ///< `start` on of each group of `stride` rows.
};

/// Attention over a packed row of documents.
enum class PackedAttention : std::uint8_t {
  None,       ///< The row is one document.
  FlashAttn,  ///< flash_attn.flash_attn_varlen_func: transformers' "flash_attention_2".
  Varlen,     ///< torch.nn.attention.varlen.varlen_attn.
  Sdpa,       ///< scaled_dot_product_attention with a mask of the row's square, which transformers makes.
  Flex,       ///< torch.nn.attention.flex_attention, compiled, with a block mask.
};

/// What shares a scale in a linear layer that multiplies in 8-bit floats, by torchao's names.
enum class Float8Recipe : std::uint8_t {
  Tensorwise,       ///< A whole tensor; gradients in e5m2.
  Rowwise,          ///< Each row, and the scale is a power of two.
  RowwiseWithGwHp,  ///< The same, but the gradient of the weight is a product in the dtype of the activations.
};

/// The names of these in specs and expanded models.
std::string_view name_of(PackedAttention packed);
std::string_view name_of(RotaryScaling scaling);
std::optional<RotaryScaling> parse_rotary_scaling(std::string_view text);
std::string_view name_of(ConstantFill fill);
std::string_view name_of(Float8Recipe recipe);
std::optional<ConstantFill> parse_constant_fill(std::string_view text);

/// The attributes of all ops. A kind reads only the fields that its comment above names.
struct OpAttributes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = false;
  std::int64_t window = 0;  ///< Sliding attention window in tokens; 0 if none.
  double softcap = 0;       ///< Cap on attention scores (Gemma-2); 0 if none.
  double score_scale = 0;   ///< Factor of attention scores; 0 means 1 / sqrt(head_dim).
  double probability = 0;   ///< Dropout, also inside attention.
  PackedAttention packed = PackedAttention::None;
  std::vector<std::int64_t> documents = {};  ///< Lengths of the documents in a packed row; empty if it is not packed.
  RotaryFrequencies rotary = {};
  double eps = 0;                  ///< Added to the variance by a norm; the minimum under the root of Std.
  double momentum = 0.1;           ///< For BatchNorm's running statistics.
  bool partial_rotary = false;     ///< Rotary cuts heads into a turned and a kept part, which may be empty.
  bool interleaved = false;        ///< Rotary turns neighbors, not halves (GLM). RotaryTable: numbers stand twice.
  bool by_halves = false;          ///< Rotary and its table: gpt-oss, DeepSeek-V3.
  bool as_complex = false;         ///< Rotary and its table: complex numbers in fp32, whatever the runtime has.
  bool from_cache = false;         ///< RotaryTable: rows of the module's buffer `cache` by position (torchtitan 0.3).
  bool of_positions = false;       ///< RotaryTable: rows of the buffers `cos` and `sin` by position (NeMo Automodel).
  bool one_op = false;             ///< RMSNorm: in fp32 in one op that saves its input and weight (NeMo Automodel).
  bool in_float = false;           ///< Rotary: heads are cast to fp32, turned, and cast back (torchtitan 0.3).
  bool wide = false;               ///< RotaryTable: in fp32, so that heads are turned in fp32 (OLMo). Router.
                                   ///< Rotary: as `in_float`, for [batch, heads, seq, dim] (Cohere).
  bool unit_offset = false;        ///< RMSNorm multiplies by 1 + weight, in fp32 (Gemma). LayerNorm (Nemotron).
  bool brief = false;              ///< RMSNorm: its numbers in fp32 live until they are cast (Llama 4).
  bool wide_weight = false;        ///< Norms multiply by the weight in fp32, and cast last (OLMo 2, Cohere).
  bool liger = false;              ///< RMSNorm, Rotary: one kernel of Liger.
  bool in_place = false;           ///< RMSNorm of Liger: its input's gradient is written over its output's. Add: its
                                   ///< result is written over its first input.
  bool approximate = false;        ///< GELU by tanh.
  bool written_out = false;        ///< GELU by tanh, call by call; RotaryTable without a product. ReLU: squared.
                                   ///< Sum: of rows seen as several dimensions, so its gradient is a copy.
  bool transposed_weight = false;  ///< Linear stores [in, out] (GPT-2's Conv1D).
  bool shift = false;              ///< Cross entropy over next tokens.
  std::int64_t padding_idx = -1;   ///< Embedding: a row without a gradient; -1 if none.
  bool reflect = false;            ///< Pad with reflected values; its backward saves the input.
  bool keep_dim = false;
  std::int64_t dim = -1;
  std::int64_t other_dim = -1;
  std::int64_t start = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> lengths = {};  ///< Split: the length of each part. Empty if all are equal.
  bool gate_first = false;                 ///< GatedRmsNorm: the gate's factor comes before the norm.
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  bool norm_topk_prob = true;  ///< Divides the weights of a token's experts by their sum.
  bool sigmoid = false;        ///< Router: scores are sigmoids (DeepSeek-V3).
  bool top_first = false;      ///< Router: gpt-oss.
  double limit = 0;            ///< GroupedExperts: the largest gate, and up; 0 means no limit.
  std::int64_t topk_groups = 1;
  double scale = 1;
  bool rounded = false;  ///< Scale: the factor has the dtype of the activations, as a tensor does (Gemma).
  ConstantFill fill = ConstantFill::Value;
  double value = 0;
  std::int64_t num_buckets = 0;
  std::int64_t max_distance = 0;
  bool bidirectional = false;
  std::optional<Dtype> dtype = {};
  bool as_trained = false;        ///< Cast: to the dtype in which trained parameters are computed with (PEFT).
  bool unless_autocast = false;   ///< Cast: its input under autocast (PEFT, on a base in four bits).
  std::int64_t out_features = 0;  ///< Linear4bit, whose weight's shape does not tell it.
  bool nested = false;            ///< Linear4bit: its scales are quantized, too.
  bool cloned = false;            ///< Linear4bit: its result is copied (PEFT).
  bool fp4 = false;               ///< Linear4bit: floats of four bits in place of a normal distribution's quantiles.
  std::optional<Float8Recipe> float8 = {};  ///< Linear: torchao's Float8Linear.
  bool gathered_in_float8 = false;          ///< The same: FSDP2 gathers its weight in 8 bits.
  bool backward = true;                     ///< Recorded: gradients pass from its outputs to its inputs.
  bool saves = true;                        ///< Recorded: its backward needs a tensor of the forward.

  bool operator==(const OpAttributes&) const = default;
};

/// One op of a block. Indices refer to the block that contains it.
struct Op {
  OpKind kind = OpKind::Add;
  int module = 0;               ///< In `Block::modules`: the module whose forward runs it.
  std::vector<int> inputs;      ///< In `Block::values`.
  std::vector<int> outputs;     ///< In `Block::values`.
  std::vector<int> parameters;  ///< In `Block::parameters`.
  OpAttributes attributes;

  bool operator==(const Op&) const = default;
};

}  // namespace fsdp
