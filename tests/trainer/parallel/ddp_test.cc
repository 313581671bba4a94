#include "trainer/parallel/data_parallel/ddp.h"

#include <gtest/gtest.h>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/autograd/engine.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/comm/host/thread_group.h"

namespace tandem {
namespace {

using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

constexpr int kRows = 12;  // of the global batch
constexpr DType kType = DType::F64;

struct Model {
  ParameterSet parameters{7, kType};
  Variable first = parameters.Normal("first", Shape{3, 5}, 1);
  Variable unused = parameters.Normal("unused", Shape{2}, 1);
  Variable second = parameters.Normal("second", Shape{5, 2}, 1);

  // Rows begin .. end - 1 of one fixed batch.
  Variable Loss(Context& context, int64_t begin, int64_t end) {
    const Variable x = Variable::Constant(RandomTensor(Shape{kRows, 3}, 1, kType).Rows(begin, end));
    const Variable hidden = ops::Activate(context, ops::Linear(context, x, first, Variable()),
                                          kernels::Activation::SILU);
    return ops::Linear(context, hidden, second, Variable());
  }
};

// Runs `body(rank, group)` on one thread per rank.
void OnRanks(int size, const std::function<void(int, comm::ProcessGroup&)>& body) {
  auto groups = comm::ThreadGroup::Create(size, "test");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { body(rank, *groups[rank]); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<double> SerialGradients() {
  StepFixture fixture;
  Context context(fixture.Options());
  Model model;
  Backward(context, model.Loss(context, 0, kRows));
  std::vector<double> gradients;
  for (const Variable* leaf : {&model.first, &model.second}) {
    for (int64_t i = 0; i < leaf->value().num_elements(); ++i)
      gradients.push_back(leaf->leaf().gradient().At(i));
  }
  return gradients;
}

TEST(DdpTest, GradientsAreThoseOfTheWholeBatchForAnyReplicasBucketsAndPasses) {
  const std::vector<double> serial = SerialGradients();
  for (const int size : {1, 2, 3, 4}) {
    for (const size_t bucket_bytes : {size_t{1}, size_t{100}, size_t{1} << 20}) {
      for (const int passes : {1, 3}) {
        OnRanks(size, [&](int rank, comm::ProcessGroup& group) {
          StepFixture fixture;
          Model model;
          auto ddp = parallel::Ddp::Create(
              &model.parameters, &group, &fixture.stream(),
              {.bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes});
          ASSERT_TRUE(ddp.ok()) << ddp.status();
          for (int step = 1; step <= 2;
               ++step) {  // the second step must not see the first one's sums
            Context context(fixture.Options(static_cast<uint64_t>(step)));
            (*ddp)->BeginStep(passes);
            const int64_t begin = rank * kRows / size, end = (rank + 1) * kRows / size;
            for (int pass = 0; pass < passes; ++pass) {
              (*ddp)->BeginPass(context, pass);
              const int64_t n = end - begin;
              Backward(context, model.Loss(context, begin + pass * n / passes,
                                           begin + (pass + 1) * n / passes));
            }
            (*ddp)->Finish(context);
            ASSERT_TRUE(context.status().ok()) << context.status();
            size_t i = 0;
            for (const Variable* leaf : {&model.first, &model.second}) {
              for (int64_t e = 0; e < leaf->value().num_elements(); ++e) {
                ASSERT_NEAR(leaf->leaf().gradient().At(e), serial[i++], 1e-12)
                    << size << " replicas, rank " << rank;
              }
            }
            ASSERT_TRUE(model.unused.leaf().has_gradient());
            EXPECT_EQ(model.unused.leaf().gradient().At(1), 0);
          }
        });
      }
    }
  }
}

TEST(DdpTest, AParameterThatTheLastPassDoesNotReachIsSummedAllTheSame) {
  const std::vector<double> serial = SerialGradients();
  OnRanks(2, [&](int rank, comm::ProcessGroup& group) {
    StepFixture fixture;
    Context context(fixture.Options());
    Model model;
    auto ddp = parallel::Ddp::Create(&model.parameters, &group, &fixture.stream(), {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    (*ddp)->BeginStep(2);
    (*ddp)->BeginPass(context, 0);
    Backward(context, model.Loss(context, rank * kRows / 2, (rank + 1) * kRows / 2));
    (*ddp)->BeginPass(context, 1);
    const Variable hidden = Variable::Constant(RandomTensor(Shape{4, 5}, 2, kType));
    Backward(context, ops::Linear(context, hidden, model.second, Variable()));
    (*ddp)->Finish(context);
    ASSERT_TRUE(context.status().ok()) << context.status();
    for (int64_t e = 0; e < 15; ++e)
      EXPECT_NEAR(model.first.leaf().gradient().At(e), serial[static_cast<size_t>(e)], 1e-12);
  });
}

TEST(DdpTest, AReplicaWithoutRowsTakesPartWithZeros) {
  const std::vector<double> serial = SerialGradients();
  OnRanks(2, [&](int rank, comm::ProcessGroup& group) {
    StepFixture fixture;
    Context context(fixture.Options());
    Model model;
    auto ddp = parallel::Ddp::Create(&model.parameters, &group, &fixture.stream(), {});
    (*ddp)->BeginStep(1);
    (*ddp)->BeginPass(context, 0);
    Backward(context,
             rank == 0 ? model.Loss(context, 0, kRows) : model.Loss(context, kRows, kRows));
    (*ddp)->Finish(context);
    ASSERT_TRUE(context.status().ok()) << context.status();
    EXPECT_NEAR(model.first.leaf().gradient().At(0), serial[0], 1e-12);
  });
}

// The bucket of such a replica must not keep the sum of the step before.
TEST(DdpTest, AReplicaThatNoPassReachesAddsZerosInEveryStep) {
  const std::vector<double> serial = SerialGradients();
  OnRanks(2, [&](int rank, comm::ProcessGroup& group) {
    StepFixture fixture;
    Model model;
    auto ddp = parallel::Ddp::Create(&model.parameters, &group, &fixture.stream(), {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    for (uint64_t step = 1; step <= 2; ++step) {
      Context context(fixture.Options(step));
      (*ddp)->BeginStep(1);
      (*ddp)->BeginPass(context, 0);
      if (rank == 0) Backward(context, model.Loss(context, 0, kRows));
      (*ddp)->Finish(context);
      ASSERT_TRUE(context.status().ok()) << context.status();
      size_t i = 0;
      for (const Variable* leaf : {&model.first, &model.second}) {
        for (int64_t e = 0; e < leaf->value().num_elements(); ++e) {
          ASSERT_NEAR(leaf->leaf().gradient().At(e), serial[i++], 1e-12)
              << "step " << step << ", rank " << rank;
        }
      }
    }
  });
}

// The buckets are freed with the Ddp. An all-reduce that goes on would write to freed memory.
TEST(DdpTest, AStepThatIsGivenUpEndsItsAllReduces) {
  absl::Notification given_up;
  OnRanks(2, [&](int rank, comm::ProcessGroup& group) {
    StepFixture fixture;
    Context context(fixture.Options());
    ParameterSet parameters(7, kType);
    const Variable weight = parameters.Constant("weight", Shape{4}, 1);
    auto ddp = parallel::Ddp::Create(&parameters, &group, &fixture.stream(), {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    if (rank == 1) {
      ASSERT_TRUE(given_up.WaitForNotificationWithTimeout(absl::Seconds(20)));
    }
    (*ddp)->BeginStep(1);
    (*ddp)->BeginPass(context, 0);
    Backward(context, ops::Scale(context, weight, 2));  // launches the only bucket
    if (rank == 0) {
      ddp->reset();
      given_up.Notify();
      return;
    }
    (*ddp)->Finish(context);
    EXPECT_FALSE(context.status().ok()) << "the replica that has given up took part";
  });
}

TEST(DdpTest, APeerThatAbortsFailsTheContext) {
  OnRanks(2, [&](int rank, comm::ProcessGroup& group) {
    StepFixture fixture;
    Context context(fixture.Options());
    Model model;
    auto ddp = parallel::Ddp::Create(&model.parameters, &group, &fixture.stream(), {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    if (rank == 1) return group.Abort(absl::UnavailableError("replica 1 is gone"));
    (*ddp)->BeginStep(1);
    (*ddp)->BeginPass(context, 0);
    Backward(context, model.Loss(context, 0, kRows));
    (*ddp)->Finish(context);
    EXPECT_FALSE(context.status().ok());
    EXPECT_NE(context.status().message().find("replica 1 is gone"), std::string::npos)
        << context.status();
  });
}

TEST(DdpTest, ReplicasThatDifferAreNoticed) {
  OnRanks(3, [&](int rank, comm::ProcessGroup& group) {
    StepFixture fixture;
    Model model;
    auto ddp = parallel::Ddp::Create(&model.parameters, &group, &fixture.stream(), {});
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    EXPECT_TRUE(parallel::VerifyEqual(group, 5, "weights", deadline).ok());
    const absl::Status differ =
        parallel::VerifyEqual(group, rank == 1 ? 6 : 5, "weights", deadline);
    EXPECT_EQ(differ.code(), absl::StatusCode::kInternal);
  });
}

}  // namespace
}  // namespace tandem
