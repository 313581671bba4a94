#include <algorithm>
#include <array>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/autograd/parameter.h"
#include "trainer/bench/members/members.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/way.h"
#include "trainer/optim/dense_optimizer.h"

namespace tandem::bench {

namespace {

class RingWay final : public SyncWay {
 public:
  RingWay(const SyncPoint& point, comm::QueuedGroup* group, std::shared_ptr<Buffer> memory)
      : point_(point),
        group_(*group),
        stream_(&pool_),
        memory_(std::move(memory)),
        weights_(parameters_.Constant("weights", Shape{num_rows(), dim()}, 0)),
        optimizer_({.kind = optim::Kind::ADAGRAD, .epsilon = kSyncEpsilon}, &parameters_) {
    gradients_ = Tensor::InBuffer(memory_, 0, weights_.shape(), DType::F32);
    weights_.leaf().PlaceGradient(gradients_);
    for (uint64_t batch = 0; batch < kSyncBatches; ++batch)
      ids_[batch] = IdsOf(point, rank(), batch);
  }

  // A replicated table's gradient is an array of all rows, with zeros where no id was.
  void MakeGradients(uint64_t step) override {
    auto* const gradients = gradients_.data<float>();
    std::fill_n(gradients, num_rows() * dim(), 0.0f);
    for (const uint64_t id : ids_[step % kSyncBatches]) {
      float* const row = gradients + static_cast<int64_t>(id - 1) * dim();
      for (uint32_t column = 0; column < point_.dim(); ++column)
        row[column] = GradientOf(rank(), id, column, step);
    }
  }

  absl::Status Synchronise(uint64_t step) override {
    const ArrayView view = DenseView(gradients_.data<float>(), {num_rows() * dim()});
    RETURN_IF_ERROR(group_.Await(group_.AllReduce(view, {}), absl::Now() + kBenchTimeout));
    weights_.leaf().AcceptStorage();
    optimizer_.Update(step, kSyncRate, /*gradient_scale=*/1, stream_);
    weights_.leaf().ClearGradient();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> Read(const std::vector<uint64_t>& ids) override {
    std::vector<float> rows;
    for (const uint64_t id : ids) {
      const float* const row =
          weights_.value().data<float>() + static_cast<int64_t>(id - 1) * dim();
      rows.insert(rows.end(), row, row + dim());
    }
    return rows;
  }
  rpc::Traffic traffic() const override { return group_.traffic(); }

 private:
  int64_t num_rows() const { return static_cast<int64_t>(RowsOf(point_)); }
  int64_t dim() const { return point_.dim(); }
  uint32_t rank() const { return static_cast<uint32_t>(group_.rank()); }

  const SyncPoint point_;
  comm::QueuedGroup& group_;
  ThreadPool pool_{1};
  Stream stream_;
  std::shared_ptr<Buffer> memory_;
  ParameterSet parameters_{/*seed=*/1, DType::F32};
  Variable weights_;
  Tensor gradients_;
  std::array<std::vector<uint64_t>, kSyncBatches> ids_;
  optim::DenseOptimizer optimizer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SyncWay>> MakeRingWay(const SyncPoint& point,
                                                     comm::QueuedGroup* group) {
  ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                   group->Allocate(RowsOf(point) * point.dim() * sizeof(float)));
  return std::make_unique<RingWay>(point, group, std::move(memory));
}

}  // namespace tandem::bench
