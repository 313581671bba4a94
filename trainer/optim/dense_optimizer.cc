#include "trainer/optim/dense_optimizer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"

namespace tandem::optim {

namespace {

// True if all elements are finite. Exact for f32, because f32 squares and their sum are finite in
// f64.
bool IsFinite(const Tensor& tensor, Stream& stream) {
  return tensor.num_elements() == 0 || std::isfinite(kernels::SumOfSquares(tensor.view(), stream));
}

}  // namespace

std::vector<std::string> DenseOptimizer::slot_names() const {
  switch (options_.kind) {
    case Kind::SGD:
      return {};
    case Kind::ADAGRAD:
      return {"accumulator"};
    case Kind::ADAM:
    case Kind::ADAMW:
      return {"m", "v"};
  }
  return {};
}

DenseOptimizer::DenseOptimizer(const DenseOptions& options, ParameterSet* parameters)
    : DenseOptimizer(options, parameters, WholeArrays(parameters->pointers())) {}

DenseOptimizer::DenseOptimizer(const DenseOptions& options, ParameterSet* parameters,
                               const std::vector<ElementRange>& updated)
    : options_(options), parameters_(parameters) {
  const size_t num_slots = slot_names().size();
  for (size_t p = 0; p < parameters_->all().size(); ++p) {
    Parameter* const parameter = parameters_->all()[p].get();
    slots_.emplace_back();
    const auto found = std::find_if(updated.begin(), updated.end(), [=](const ElementRange& range) {
      return range.parameter == parameter;
    });
    ranges_.push_back(found == updated.end() ? ElementRange{parameter, 0, 0} : *found);
    const int64_t count = ranges_.back().count;
    if (count == 0) continue;
    for (size_t s = 0; s < num_slots; ++s)
      slots_.back().push_back(
          parameters_->Place(Tensor::Zeros(Shape{count}, parameters_->dtype())));
    num_elements_ += count;
    for (int64_t at = 0; at < count; at += kernels::kSumBlock)
      runs_.push_back({p, at, std::min(kernels::kSumBlock, count - at)});
  }
}

DenseState DenseOptimizer::State() const {
  DenseState state{parameters_, slot_names(), std::vector<DenseState::Entry>(slots_.size())};
  for (size_t p = 0; p < slots_.size(); ++p) {
    const ElementRange& range = ranges_[p];
    if (range.count == 0) continue;
    state.entries[p] = {range.begin,
                        range.parameter->variable.leaf().ValueElements(range.begin, range.count),
                        slots_[p]};
  }
  return state;
}

DenseState DenseOptimizer::CountedState() const {
  DenseState state = State();
  for (size_t p = 0; p < slots_.size(); ++p) {
    if (!ranges_[p].counted) state.entries[p] = {};
  }
  return state;
}

std::vector<DenseOptimizer::Arrays> DenseOptimizer::RangeArrays() const {
  std::vector<Arrays> arrays(slots_.size());
  for (size_t p = 0; p < slots_.size(); ++p) {
    const auto [parameter, begin, count, counted] = ranges_[p];
    const LeafNode& leaf = parameter->variable.leaf();
    if (count == 0 || !leaf.has_gradient()) continue;
    arrays[p].value = leaf.ValueElements(begin, count);
    arrays[p].gradient = leaf.GradientElements(begin, count);
    if (leaf.held_shadow().defined())
      arrays[p].shadow = leaf.held_shadow().data<BFloat16>() + begin;
  }
  return arrays;
}

template <class T>
void DenseOptimizer::UpdateRun(const Run& run, const Arrays& arrays, uint64_t step,
                               double learning_rate, double gradient_scale) const {
  if (!arrays.gradient.defined()) return;
  const Parameter& parameter = *parameters_->all()[run.parameter];
  const auto at = [&run](const Tensor& tensor) { return tensor.data<T>() + run.begin; };
  const auto slot = [&](size_t s) { return at(slots_[run.parameter][s]); };
  T* weight = at(arrays.value);
  const T* gradient = at(arrays.gradient);
  BFloat16* shadow = arrays.shadow != nullptr ? arrays.shadow + run.begin : nullptr;
  const double decay = parameter.decay || options_.decay_all ? options_.weight_decay : 0;
  switch (options_.kind) {
    case Kind::SGD:
      return kernels::SgdUpdate(
          weight, gradient, run.count,
          {.learning_rate = learning_rate, .weight_decay = decay, .gradient_scale = gradient_scale},
          shadow);
    case Kind::ADAGRAD:
      return kernels::AdagradUpdate(weight, slot(0), gradient, run.count,
                                    {.learning_rate = learning_rate,
                                     .epsilon = options_.epsilon,
                                     .gradient_scale = gradient_scale},
                                    shadow);
    case Kind::ADAM:
    case Kind::ADAMW:
      return kernels::AdamUpdate(weight, slot(0), slot(1), gradient, run.count,
                                 {.learning_rate = learning_rate,
                                  .beta1 = options_.beta1,
                                  .beta2 = options_.beta2,
                                  .epsilon = options_.epsilon,
                                  .weight_decay = options_.kind == Kind::ADAMW ? decay : 0,
                                  .gradient_scale = gradient_scale,
                                  .step = step},
                                 shadow);
  }
}

std::vector<kernels::OptimizerRun> DenseOptimizer::DeviceRuns(bool counted_only) const {
  const std::vector<Arrays> arrays = RangeArrays();
  std::vector<kernels::OptimizerRun> runs;
  for (size_t p = 0; p < slots_.size(); ++p) {
    if (!arrays[p].gradient.defined() || (counted_only && !ranges_[p].counted)) continue;
    const Parameter& parameter = *parameters_->all()[p];
    kernels::OptimizerRun& run = runs.emplace_back();
    run.weight = arrays[p].value.data<float>();
    for (size_t s = 0; s < slots_[p].size(); ++s) run.slots[s] = slots_[p][s].data<float>();
    run.gradient = arrays[p].gradient.data<float>();
    run.shadow = arrays[p].shadow;
    run.count = ranges_[p].count;
    run.decay = parameter.decay || options_.decay_all;
  }
  return runs;
}

void DenseOptimizer::UpdateOnDevice(uint64_t step, double learning_rate, double gradient_scale,
                                    Stream& stream) const {
  const std::vector<kernels::OptimizerRun> runs = DeviceRuns();
  switch (options_.kind) {
    case Kind::SGD:
      return kernels::SgdUpdate(runs,
                                {.learning_rate = learning_rate,
                                 .weight_decay = options_.weight_decay,
                                 .gradient_scale = gradient_scale},
                                stream);
    case Kind::ADAGRAD:
      return kernels::AdagradUpdate(runs,
                                    {.learning_rate = learning_rate,
                                     .epsilon = options_.epsilon,
                                     .gradient_scale = gradient_scale},
                                    stream);
    case Kind::ADAM:
    case Kind::ADAMW:
      return kernels::AdamUpdate(
          runs,
          {.learning_rate = learning_rate,
           .beta1 = options_.beta1,
           .beta2 = options_.beta2,
           .epsilon = options_.epsilon,
           .weight_decay = options_.kind == Kind::ADAMW ? options_.weight_decay : 0,
           .gradient_scale = gradient_scale,
           .step = step},
          stream);
  }
}

void DenseOptimizer::Update(uint64_t step, double learning_rate, double gradient_scale,
                            Stream& stream) {
  // Reads weights, slots and gradients; writes weights and slots.
  const double bytes_each =
      static_cast<double>(SizeOf(parameters_->dtype())) * (3.0 + 2.0 * slot_names().size());
  const KernelSpan span(stream, SpanKind::OPTIMIZER, "dense_update", 0,
                        bytes_each * static_cast<double>(num_elements_));
  if (stream.on_cuda()) return UpdateOnDevice(step, learning_rate, gradient_scale, stream);
  const std::vector<Arrays> arrays = RangeArrays();
  stream.pool().ParallelFor(static_cast<int64_t>(runs_.size()), [&](int64_t r) {
    const Run& run = runs_[r];
    if (parameters_->dtype() == DType::F64)
      UpdateRun<double>(run, arrays[run.parameter], step, learning_rate, gradient_scale);
    else
      UpdateRun<float>(run, arrays[run.parameter], step, learning_rate, gradient_scale);
  });
}

double DenseOptimizer::GradientSquaredNorm(Stream& stream) const {
  const KernelSpan span(stream, SpanKind::OPTIMIZER, "gradient_norm", 0,
                        static_cast<double>(SizeOf(parameters_->dtype())) * num_elements_);
  if (stream.on_cuda())
    return kernels::GradientSquaredNorm(DeviceRuns(/*counted_only=*/true), stream);
  std::vector<double> partials(runs_.size(), 0);
  const std::vector<Arrays> arrays = RangeArrays();
  stream.pool().ParallelFor(static_cast<int64_t>(runs_.size()), [&](int64_t r) {
    const Run& run = runs_[r];
    const Tensor& gradient = arrays[run.parameter].gradient;
    if (!gradient.defined() || !ranges_[run.parameter].counted) return;
    partials[r] = parameters_->dtype() == DType::F64
                      ? kernels::SquaredNorm(gradient.data<double>() + run.begin, run.count)
                      : kernels::SquaredNorm(gradient.data<float>() + run.begin, run.count);
  });
  // Adds the runs of each parameter first, then the parameters. So each parameter contributes its
  // SumOfSquares.
  double sum = 0, of_parameter = 0;
  for (size_t r = 0; r < runs_.size(); ++r) {
    of_parameter += partials[r];
    if (r + 1 < runs_.size() && runs_[r + 1].parameter == runs_[r].parameter) continue;
    sum += of_parameter;
    of_parameter = 0;
  }
  return sum;
}

std::string DenseOptimizer::FirstNonFinite(Stream& stream) const {
  const std::vector<std::string> names = slot_names();
  for (size_t p = 0; p < slots_.size(); ++p) {
    const Parameter& parameter = *parameters_->all()[p];
    const LeafNode& leaf = parameter.variable.leaf();
    const Tensor& part = leaf.value_part().elements;
    const Tensor& value = part.defined() ? part : leaf.held_value();
    if (value.defined() && !IsFinite(value, stream)) return parameter.name;
    for (size_t s = 0; s < slots_[p].size(); ++s) {
      if (!IsFinite(slots_[p][s], stream)) return absl::StrCat(parameter.name, "#", names[s]);
    }
  }
  return "";
}

std::string DenseOptimizer::FirstNonFiniteGradient(Stream& stream) const {
  for (size_t p = 0; p < slots_.size(); ++p) {
    const Parameter& parameter = *parameters_->all()[p];
    const LeafNode& leaf = parameter.variable.leaf();
    const ElementRange& range = ranges_[p];
    if (range.count > 0 && leaf.has_gradient() &&
        !IsFinite(leaf.GradientElements(range.begin, range.count), stream))
      return parameter.name;
  }
  return "";
}

}  // namespace tandem::optim
