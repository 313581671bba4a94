#include "kernels/cpu/linear_cross_entropy_reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/gemm.h"

namespace tandem::kernels {

namespace {

// Gives the statistics of the logits [rows, classes], or turns the logits into gradients.
void HalfOfRows(std::vector<double>& logits, const int64_t* targets, const LossHalf& half) {
  const ArrayView& sums = half.is_first() ? half.log_sum : half.given;
  const int64_t rows = sums.num_elements(),
                classes = rows == 0 ? 0 : static_cast<int64_t>(logits.size()) / rows;
  for (int64_t r = 0; r < rows; ++r) {
    double* const x = logits.data() + r * classes;
    const int64_t target = targets[r] - half.first_class;
    const bool here = target >= 0 && target < classes;
    if (half.is_first()) {
      const double max = *std::max_element(x, x + classes);
      double sum = 0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c] - max);
      half.log_sum.as<double>()[r] = max + std::log(sum);
      half.target_logit.as<double>()[r] = here ? x[target] : 0;
      continue;
    }
    for (int64_t c = 0; c < classes; ++c) x[c] = std::exp(x[c] - half.given.as<double>()[r]);
    if (here) x[target] -= 1;
  }
}

}  // namespace

void LinearCrossEntropyReference(const LinearCrossEntropyArgs& args, Stream& stream,
                                 const LossHalf* half) {
  const int64_t rows = args.hidden.shape[0],
                classes = args.weight.shape[args.weight_is_table ? 0 : 1];
  std::vector<double> memory(rows * classes), ones(rows, 1.0);
  const ArrayView logits = DenseView(memory.data(), {rows, classes});
  Gemm({.a = args.hidden,
        .b = args.weight,
        .c = logits,
        .transpose_b = args.weight_is_table,
        .bias = args.bias},
       stream);
  if (half == nullptr) {
    CrossEntropy({.logits = logits, .target = args.target, .loss = args.loss, .grad = logits},
                 stream);
  } else {
    HalfOfRows(memory, args.target.as<int64_t>(), *half);
  }
  if (!args.grad_hidden.empty()) {
    Gemm({.a = logits,
          .b = args.weight,
          .c = args.grad_hidden,
          .transpose_b = !args.weight_is_table},
         stream);
  }
  if (!args.grad_weight.empty()) {
    const bool table = args.weight_is_table;
    Gemm({.a = table ? logits : args.hidden,
          .b = table ? args.hidden : logits,
          .c = args.grad_weight,
          .transpose_a = true},
         stream);
  }
  if (!args.grad_bias.empty()) {
    const ArrayView row(args.grad_bias.data, args.grad_bias.dtype, {1, classes});
    Gemm({.a = DenseView(ones.data(), {1, rows}), .b = logits, .c = row}, stream);
  }
}

}  // namespace tandem::kernels
