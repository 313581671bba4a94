// A program of another project: it trains a layer of Tandem's and has the commands of `tandem`.
// It shows that public headers, the libraries and what they are linked with are found from outside.
#include <cstdio>
#include <string>

#include "trainer/autograd/engine.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/cli/command_line.h"
#include "trainer/nn/layers.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/tasks/task.h"

using namespace tandem;

// Returns the loss of two rows after `steps` steps.
double Train(int steps) {
  ThreadPool pool(1);
  Stream stream(&pool);
  ParameterSet parameters(/*seed=*/1, DType::F32);
  const nn::Linear layer(parameters, "fc", 2, 2, {});
  optim::DenseOptimizer optimizer({.kind = optim::Kind::ADAGRAD}, &parameters);
  const Variable rows = Variable::Constant(Tensor::FromVector<float>({1, 0, 0, 1}, Shape{2, 2}));
  const Tensor labels = Tensor::FromVector<int64_t>({1, 0});
  double value = 0;
  for (int step = 1; step <= steps; ++step) {
    Context context({.stream = &stream, .step = static_cast<uint64_t>(step)});
    const Variable loss = ops::CrossEntropySum(context, layer.Forward(context, rows), labels);
    Backward(context, loss);
    optimizer.Update(step, 0.1, 1, stream);
    value = loss.value().At(0);
  }
  return value;
}

int main(int argc, char** argv) {
  if (argc > 1) return cli::RunCommandLine(argc, argv, {});
  const double first = Train(1), last = Train(50);
  std::printf("loss %.3f, then %.3f\n", first, last);
  return last < first / 2 ? 0 : 1;
}
