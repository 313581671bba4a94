#include "trainer/loop/batches.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"

namespace tandem::loop {

double Batch::num_targets() const {
  return static_cast<double>(std::max<int64_t>(1, input->global_targets));
}

Batches::Batches(const tasks::Task* task, sparse::RemoteEmbedding* tables, int64_t first_step,
                 int64_t last_step)
    : tables_(tables), loader_(task, first_step, last_step), last_pulled_(first_step - 1) {}

void Batches::PullNext() {
  Batch next{loader_.Next(), nullptr};
  if (!next.input) return;
  ++last_pulled_;
  if (tables_ != nullptr) {
    next.rows =
        tables_->Pull(static_cast<uint64_t>(last_pulled_), /*create=*/true, next.input->ids);
  }
  pulled_.push_back(std::move(next));
}

absl::Status Batches::AwaitRows(absl::Time deadline) {
  for (Batch& batch : pulled_) {
    if (batch.rows) RETURN_IF_ERROR(batch.rows->Await(deadline).status());
  }
  return absl::OkStatus();
}

}  // namespace tandem::loop
