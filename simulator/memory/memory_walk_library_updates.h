#pragma once

// The states and temporaries of optimizers that PyTorch's foreach, fused and loop do not compute: rows of
// core/plan/optimizer_table.h with another `UpdateRule`.
//
// Coded moments. bitsandbytes makes for each tensor the codes of both moments and then their scales; two tables of
// values are made with the first of them. torchao makes codes, scales and a table for one moment after the other. A
// tensor that is too small, or that torchao's block does not divide, has plain moments.
//
// Compiled. A kernel of torch.compile reads the gradient and the states, and writes for each moment the scales and the
// moment: in fp32, in fp8, or for codes of 4 bits in fp32 and then as int64 indexes. The next kernel codes them. A
// tensor that is not coded has one kernel. In the first step each kernel's configurations are compared: between two
// runs the GPU's cache is cleared through a buffer of its size. The tensors that the kernel changes are copied only as
// far as the peak so far allows (Inductor's copy_args_to_cpu_if_needed), so that copies do not raise it.
//
// bitsandbytes, torchao and transformers' Adafactor make the states of a parameter in its first update; torch.optim and
// schedulefree make all states first.
//
// Factors. transformers' Adafactor keeps for a matrix the means of its squared gradient over rows and over columns, for
// everything else (a flat parameter, too) one moment, all in fp32. It casts gradient and parameter of 16 bits to fp32
// and has the square, its sum with eps, the two factors, the update and its negative; variables hold the tensors of a
// parameter until the next one has its own. torch.optim.Adafactor has the same states in the parameter's dtype and
// writes its estimate of the second moment into one tensor of the parameter's size.
//
// Sources: bitsandbytes 0.50.2, optim/optimizer.py (init_state, update_step); torchao 0.18.0, optim/adam.py and
// subclass_{8bit,4bit,fp8}.py; torch/_inductor/runtime/triton_heuristics.py; transformers 5.24.0, optimization.py
// (Adafactor.step); torch/optim/_adafactor.py (_single_tensor_adafactor), torch 2.11.
//
// Not modeled: 4 MiB that a script has more with torchao's optimizers (export_trainers_test.py), of unknown cause; the
// scalars and the scratch memory of Adafactor's norms, and that of its means over rows; caches of another
// size than an H100's 50 MiB.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/optimizer_table.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/memory/memory_walk_shards.h"
#include "simulator/ops/reduction_scratch.h"

namespace fsdp::simulator {

template <class Sink>
class LibraryUpdates : protected ShardLists<Sink> {
 protected:
  LibraryUpdates(const WalkInput& input, Sink& sink)
      : ShardLists<Sink>(input, sink), row_(optimizer_row(input.plan->optimizer)) {}

  bool is_factored() const { return row_.update == UpdateRule::Factors || row_.update == UpdateRule::TorchFactors; }

  /// `count`: of tensors like this one.
  void make_moments(const ShardedParameter& p, std::int64_t count) {
    if (is_factored()) return make_factors(p, count);
    const std::int64_t moments = num_moments(in_.plan->optimizer);
    const std::int64_t n = p.local_elements;
    const MomentBytes bytes = moment_bytes(in_.plan->optimizer, n, element_size(p.parameter));
    if (row_.coded.shares_tables && bytes.scales > 0) make_shared_tables(moments);
    const bool is_paged = pages_moment(in_.plan->optimizer, n);
    for (std::int64_t m = 0; m < moments; ++m) {
      if (!is_paged) keep_state(kMoments[m], p, bytes.values, count);
      if (row_.coded.scales_last) continue;
      keep_state(kScales[m], p, bytes.scales, count);
      keep_state(kTables[m], p, bytes.table, count);
    }
    for (std::int64_t m = 0; m < moments && row_.coded.scales_last; ++m) keep_state(kScales[m], p, bytes.scales, count);
  }

  /// Whether the states of a parameter are made in its first update; else all are made before any update.
  bool makes_states_by_turns() const {
    return row_.update == UpdateRule::Kernel || row_.update == UpdateRule::Compiled ||
           row_.update == UpdateRule::Factors;
  }

  /// The temporaries of one parameter. Variables may hold some until the next one, or `finish_updates`.
  void update_one(const ShardedParameter& shard, bool is_first) {
    switch (row_.update) {
      case UpdateRule::Compiled:
        return update_compiled(shard, is_first);
      case UpdateRule::Factors:
        return update_factors(shard);
      case UpdateRule::TorchFactors:
        return update_torch_factors(shard);
      default:
        return;
    }
  }
  void finish_updates() {
    for (std::size_t i = 0; i < kNumUpdateTensors; ++i) drop(i);
    turn_ = square_turn_ = 0;
  }

  using ShardLists<Sink>::in_;
  using ShardLists<Sink>::sink_;
  using ShardLists<Sink>::shards_;
  using ShardLists<Sink>::element_size;
  using ShardLists<Sink>::each;
  using ShardLists<Sink>::keep;

 private:
  static constexpr std::array kMoments = {ParameterTensor::FirstMoment, ParameterTensor::SecondMoment};
  static constexpr std::array kScales = {ParameterTensor::FirstScale, ParameterTensor::SecondScale};
  static constexpr std::array kTables = {ParameterTensor::FirstTable, ParameterTensor::SecondTable};

  void keep_state(ParameterTensor what, const ShardedParameter& p, std::int64_t bytes, std::int64_t count) {
    if (bytes > 0) keep(what, p.parameter, bytes, count, MemoryCategory::OptState);
  }

  void make_shared_tables(std::int64_t moments) {
    if (std::exchange(has_tables_, true)) return;
    for (std::int64_t m = 0; m < moments; ++m) {
      const auto table = static_cast<SingleTensor>(static_cast<int>(SingleTensor::StateTable) + m);
      sink_.alloc(in_.ids->of(table), row_.coded.table, MemoryStream::Compute, MemoryCategory::OptState);
    }
  }

  // A flat parameter is a vector, and so is a part of one.
  bool has_factors(const ShardedParameter& p) const {
    const bool is_cut = in_.layout->flat == FlatParameters::Whole || in_.layout->mesh.dp_shard() > 1;
    if (in_.layout->has_flat_units() && is_cut) return false;
    return in_.index->model->parameters[p.parameter].shape.size() > 1;
  }

  void make_factors(const ShardedParameter& p, std::int64_t count) {
    const std::int64_t size = row_.has_float_states ? 4 : element_size(p.parameter);
    const std::int64_t n = p.local_elements;
    if (!has_factors(p)) {
      keep_state(ParameterTensor::FirstMoment, p, n * size, count);
    } else {
      const std::vector<std::int64_t>& shape = in_.index->model->parameters[p.parameter].shape;
      keep_state(ParameterTensor::FirstMoment, p, n / shape.back() * size, count);
      keep_state(ParameterTensor::SecondMoment, p, n / shape[shape.size() - 2] * size, count);
    }
    // The root mean square of the parameter.
    if (row_.update == UpdateRule::Factors) keep_state(ParameterTensor::StepCount, p, 4, count);
  }

  void update_compiled(const ShardedParameter& shard, bool is_first) {
    constexpr std::int64_t kCache = 50LL << 20;
    const std::int64_t n = shard.local_elements;
    if (!row_.coded.codes(n)) return;
    const std::int64_t scales = moment_bytes(in_.plan->optimizer, n, 4).scales;
    const auto& [first, second] = row_.coded.passed;
    const std::array sizes = {scales, scales, first * n, first * n, second * n, second * n, is_first ? kCache : 0};
    for (std::size_t i = 0; i < sizes.size(); ++i) make(i, sizes[i]);
    for (std::size_t i = 0; i < sizes.size(); ++i) drop(i);
  }

  void update_factors(const ShardedParameter& shard) {
    enum : std::size_t { Grad, Copy, Square, Sum, Negative, Rows, Columns, Update };
    const std::int64_t bytes = 4 * shard.local_elements;
    for (const std::size_t cast : {Grad, Copy}) {
      drop(cast);
      if (element_size(shard.parameter) < 4) make(cast, bytes);
    }
    make(Square, bytes);
    make(Sum, bytes);
    drop(Square);
    drop(Update + 1 - turn_);
    make_column_scratch(shard);
    if (has_factors(shard)) {
      const std::vector<std::int64_t>& shape = in_.index->model->parameters[shard.parameter].shape;
      make(Rows, bytes / shape.back());
      make(Columns, bytes / shape[shape.size() - 2]);
    }
    replace(Update, turn_, bytes);
    for (const std::size_t factor : {Rows, Columns, Sum}) drop(factor);
    make(Negative, bytes);
    drop(Negative);
  }

  // The square of a vector's gradient, and the estimate.
  void update_torch_factors(const ShardedParameter& shard) {
    enum : std::size_t { Square = 0, Estimate = 2 };
    const std::int64_t bytes = shard.local_elements * element_size(shard.parameter);
    make_column_scratch(shard);
    const bool is_vector = !has_factors(shard);
    if (is_vector) replace(Square, square_turn_, bytes);
    replace(Estimate, turn_, bytes);
  }

  // A mean over the rows of a tall matrix is summed by several blocks of threads.
  void make_column_scratch(const ShardedParameter& p) {
    if (!has_factors(p) || in_.limits.num_sms == 0) return;
    const std::int64_t columns = in_.index->model->parameters[p.parameter].shape.back();
    const std::vector<std::int64_t> scratch = reduction_scratch(columns, p.local_elements / columns, false, in_.limits);
    for (std::size_t i = 0; i < scratch.size(); ++i) make(kNumUpdateTensors - 1 - i, scratch[i]);
    for (std::size_t i = 0; i < scratch.size(); ++i) drop(kNumUpdateTensors - 1 - i);
  }

  int id(std::size_t i) const { return in_.ids->of(SingleTensor::UpdateTensor) + static_cast<int>(i); }
  void make(std::size_t i, std::int64_t bytes) {
    if (bytes == 0) return;
    sink_.alloc(id(i), bytes, MemoryStream::Compute, MemoryCategory::Temp);
    is_made_[i] = true;
  }
  // Makes a tensor at one of two places, and drops the one at the other.
  void replace(std::size_t first, std::size_t& turn, std::int64_t bytes) {
    make(first + turn, bytes);
    turn = 1 - turn;
    drop(first + turn);
  }
  void drop(std::size_t i) {
    if (std::exchange(is_made_[i], false)) sink_.free(id(i));
  }

  const OptimizerRow& row_;
  bool has_tables_ = false;
  // A tensor that lives until the next parameter has its own has two places.
  std::size_t turn_ = 0;
  std::size_t square_turn_ = 0;
  std::array<bool, kNumUpdateTensors> is_made_ = {};
};

}  // namespace fsdp::simulator
