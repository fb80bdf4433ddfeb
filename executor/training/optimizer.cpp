// Adam and AdamW: m = lerp(m, g, 1 - b1); v = v b2 + g g (1 - b2); p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) +
// eps). AdamW first scales p by 1 - lr wd; Adam adds wd p to g. torch::optim of LibTorch computes m in another order
// and differs by an ulp from Python, which in bf16 becomes whole steps.
//
// Sources: torch/optim/adam.py (_multi_tensor_adam, _single_tensor_adam, _fused_adam), torch/optim/sgd.py, torch 2.11.

#include "executor/training/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <map>
#include <utility>

#include "core/plan/optimizer_table.h"
#include "executor/memory/counting_allocator.h"

namespace fsdp::executor {

/// Parameters of one dtype and one age, which one foreach call updates together.
struct RunningOptimizer::Group {
  std::vector<std::size_t> members;  // Indices in `parameters_`.
  std::vector<at::Tensor> parameters, gradients, first, second;
  std::vector<at::Tensor> steps;  // With the fused implementation.
  std::int64_t step = 0;
};

namespace {

// Frees them in the order in which Python frees a list.
void drop_from_the_end(std::vector<at::Tensor>& list) {
  while (!list.empty()) list.pop_back();
}

}  // namespace

RunningOptimizer::RunningOptimizer(const Optimizer& plan, const Hyperparameters& settings,
                                   std::vector<ParameterState*> parameters, std::vector<bool> is_decayed)
    : plan_(plan),
      settings_(settings),
      parameters_(std::move(parameters)),
      is_decayed_(std::move(is_decayed)),
      moments_(parameters_.size()) {
  plan_.weight_decay = settings.weight_decay.value_or(plan.weight_decay);
}

bool RunningOptimizer::is_decayed(const Group& group, std::size_t member) const {
  return is_decayed_[parameters_[group.members[member]]->layout.parameter];
}

// Gradients with the weight decay of Adam and SGD. Does not copy a gradient without decay.
std::vector<at::Tensor> RunningOptimizer::with_decay(const Group& group) const {
  std::vector<at::Tensor> gradients, parameters;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (!is_decayed(group, i)) continue;
    gradients.push_back(group.gradients[i]);
    parameters.push_back(group.parameters[i]);
  }
  if (gradients.empty()) return group.gradients;
  std::vector<at::Tensor> sums = at::_foreach_add(gradients, parameters, plan_.weight_decay);
  if (sums.size() == group.gradients.size()) return sums;
  std::vector<at::Tensor> all = group.gradients;
  std::size_t next = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_decayed(group, i)) all[i] = std::move(sums[next++]);
  }
  return all;
}

void RunningOptimizer::make_moments(std::size_t index) {
  const CategoryScope states(MemoryCategory::OptState);
  Moments& moments = moments_[index];
  const at::Tensor& local = parameters_[index]->local;
  if (plan_.implementation == OptimizerImplementation::Fused) {
    moments.step_on_device = at::zeros({}, local.options().dtype(c10::kFloat));
  }
  moments.first = at::zeros_like(local);
  moments.second = at::zeros_like(local);
}

std::vector<RunningOptimizer::Group> RunningOptimizer::groups() {
  std::map<std::pair<int, std::int64_t>, Group> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ParameterState& state = *parameters_[i];
    if (!state.grad.defined()) continue;
    Moments& moments = moments_[i];
    const bool is_new = moments.step++ == 0;
    if (is_new && optimizer_row(plan_).counts_steps) make_moments(i);
    Group& group = found[{static_cast<int>(state.dtype), moments.step}];
    group.step = moments.step;
    group.members.push_back(i);
    group.parameters.push_back(state.local);
    group.gradients.push_back(state.grad);
    if (!optimizer_row(plan_).counts_steps) continue;
    group.first.push_back(moments.first);
    group.second.push_back(moments.second);
    if (moments.step_on_device.defined()) group.steps.push_back(moments.step_on_device);
  }
  std::vector<Group> list;
  for (auto& [key, group] : found) list.push_back(std::move(group));
  return list;
}

const RunningOptimizer::Kernels& RunningOptimizer::kernels_of(OptimizerKind kind) {
  using Self = RunningOptimizer;
  static constexpr Kernels kAdam = {&Self::adam, &Self::adam_fused, &Self::adam_one_by_one};
  static constexpr Kernels kSgd = {&Self::sgd, &Self::sgd, &Self::sgd_one_by_one};
  return optimizer_row(kind).counts_steps ? kAdam : kSgd;
}

void RunningOptimizer::step(double learning_rate) {
  const c10::AutoGradMode no_gradient(false);
  rate_ = learning_rate;
  const Kernels& kernels = kernels_of(plan_.kind);
  for (const Group& group : groups()) (this->*kernels[static_cast<std::size_t>(plan_.implementation)])(group);
}

void RunningOptimizer::adam(const Group& group) {
  const double lr = rate_;
  const auto t = static_cast<double>(group.step);
  std::vector<at::Tensor> gradients = group.gradients;
  if (plan_.weight_decay != 0) {
    if (optimizer_row(plan_).decouples_decay) {
      std::vector<at::Tensor> decayed;
      for (std::size_t i = 0; i < group.members.size(); ++i) {
        if (is_decayed(group, i)) decayed.push_back(group.parameters[i]);
      }
      if (!decayed.empty()) at::_foreach_mul_(decayed, 1 - lr * plan_.weight_decay);
    } else {
      gradients = with_decay(group);
    }
  }
  at::_foreach_lerp_(group.first, gradients, 1 - settings_.beta1);
  at::_foreach_mul_(group.second, settings_.beta2);
  at::_foreach_addcmul_(group.second, gradients, gradients, 1 - settings_.beta2);
  const double correction1 = 1 - std::pow(settings_.beta1, t);
  const double correction2 = 1 - std::pow(settings_.beta2, t);
  std::vector<at::Tensor> roots = at::_foreach_sqrt(group.second);
  at::_foreach_div_(roots, std::sqrt(correction2));
  at::_foreach_add_(roots, settings_.eps);
  at::_foreach_addcdiv_(group.parameters, group.first, roots, (lr / correction1) * -1);
  drop_from_the_end(roots);
  drop_from_the_end(gradients);
}

void RunningOptimizer::adam_one_by_one(const Group& group) {
  const double lr = rate_;
  const auto t = static_cast<double>(group.step);
  const double correction1 = 1 - std::pow(settings_.beta1, t);
  const double correction2 = 1 - std::pow(settings_.beta2, t);
  at::Tensor root;  // A variable of PyTorch's loop, alive until the next one exists.
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const at::Tensor& parameter = group.parameters[i];
    at::Tensor gradient = group.gradients[i];
    if (plan_.weight_decay != 0 && is_decayed(group, i)) {
      if (optimizer_row(plan_).decouples_decay) {
        parameter.mul_(1 - lr * plan_.weight_decay);
      } else {
        gradient = gradient.add(parameter, plan_.weight_decay);
      }
    }
    group.first[i].lerp_(gradient, 1 - settings_.beta1);
    group.second[i].mul_(settings_.beta2).addcmul_(gradient, gradient, 1 - settings_.beta2);
    root = (group.second[i].sqrt() / std::sqrt(correction2)).add_(settings_.eps);
    parameter.addcdiv_(group.first[i], root, -(lr / correction1));
  }
}

void RunningOptimizer::adam_fused(const Group& group) {
  at::_foreach_add_(group.steps, 1);
  for (const bool decays : {true, false}) {
    std::vector<at::Tensor> parameters, gradients, first, second, steps;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      if (is_decayed(group, i) != decays) continue;
      parameters.push_back(group.parameters[i]);
      gradients.push_back(group.gradients[i]);
      first.push_back(group.first[i]);
      second.push_back(group.second[i]);
      steps.push_back(group.steps[i]);
    }
    if (parameters.empty()) continue;
    const double decay = decays ? plan_.weight_decay : 0;
    const auto run = [&](auto&& function) {
      function(parameters, gradients, first, second, at::TensorList{}, steps, rate_, settings_.beta1, settings_.beta2,
               decay, settings_.eps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
    };
    if (optimizer_row(plan_).decouples_decay) {
      run([](auto&&... a) { at::_fused_adamw_(a...); });
    } else {
      run([](auto&&... a) { at::_fused_adam_(a...); });
    }
  }
}

at::Tensor RunningOptimizer::with_momentum(std::size_t index, const at::Tensor& gradient) {
  const CategoryScope states(MemoryCategory::OptState);
  at::Tensor& buffer = moments_[index].first;
  if (!buffer.defined()) {
    buffer = gradient.clone();
  } else {
    buffer.mul_(plan_.momentum).add_(gradient);
  }
  return buffer;
}

void RunningOptimizer::sgd(const Group& group) {
  std::vector<at::Tensor> gradients = group.gradients;
  if (plan_.weight_decay != 0) gradients = with_decay(group);
  if (plan_.momentum != 0) {
    // As in PyTorch, decayed gradients live until all buffers are made.
    std::vector<at::Tensor> buffers;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      buffers.push_back(with_momentum(group.members[i], gradients[i]));
    }
    gradients = std::move(buffers);
  }
  at::_foreach_add_(group.parameters, gradients, -rate_);
}

void RunningOptimizer::sgd_one_by_one(const Group& group) {
  at::Tensor gradient;  // A variable of PyTorch's loop, as above.
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    gradient = group.gradients[i];
    const bool decays = plan_.weight_decay != 0 && is_decayed(group, i);
    if (decays) gradient = gradient.add(group.parameters[i], plan_.weight_decay);
    if (plan_.momentum != 0) gradient = with_momentum(group.members[i], gradient);
    group.parameters[i].add_(gradient, -rate_);
  }
}

LaterNumber clip_gradients(const std::vector<ParameterState*>& parameters, double max_norm,
                           fsdp::executor::Group& shard, CollectiveListener& listener) {
  const c10::AutoGradMode no_gradient(false);
  std::vector<at::Tensor> gradients;
  for (const ParameterState* state : parameters) {
    if (state->grad.defined()) gradients.push_back(state->grad);
  }
  if (gradients.empty()) return {};
  // Separate statements, freed in the order of Python's variables.
  std::vector<at::Tensor> each = at::_foreach_norm(gradients, 2.0);
  at::Tensor stacked = at::stack(each);
  at::Tensor norms = stacked;
  if (shard.size() > 1) {
    at::Tensor squares = stacked.pow(2.0);
    at::Tensor sums = squares.clone();  // The functional all-reduce of DTensor makes a new tensor.
    listener.called(-1, {CollectiveKind::AllReduce, sums.scalar_type(), sums.numel(),
                         static_cast<std::int64_t>(sums.nbytes()), MeshDimension::Shard, shard.size()});
    shard.all_reduce(sums, ReduceOp::Sum)->wait();
    norms = sums.pow(1.0 / 2.0);
  }
  const at::Tensor total = at::linalg_vector_norm(norms, 2.0);
  norms.reset();
  stacked.reset();
  each.clear();
  // Python divides a number by a tensor by multiplying with its reciprocal.
  at::Tensor denominator = total + 1e-6;
  at::Tensor inverse = at::reciprocal(denominator);
  const at::Tensor unclamped = inverse * max_norm;
  inverse.reset();
  denominator.reset();
  const at::Tensor factor = unclamped.clamp_max(1.0);
  at::_foreach_mul_(gradients, factor);
  return LaterNumber(total);
}

}  // namespace fsdp::executor
