#include "trainer/tasks/embedding_table.h"

#include <numeric>

#include "proto/job.pb.h"

namespace tandem::tasks {

namespace {

constexpr uint32_t kTableNumber = 1;  // TableSpecsOf gives a job's first table this number

}  // namespace

std::vector<uint64_t> AllRowIds(int64_t count) {
  std::vector<uint64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), RowIdOf(0));
  return ids;
}

std::unique_ptr<sparse::RemoteEmbedding> MakeEmbeddingTable(const Job& job, ps::RowClient* rows,
                                                            Stream* stream) {
  if (job.placement() != Job::PS) return nullptr;
  return std::make_unique<sparse::RemoteEmbedding>(rows, kTableNumber, job.tables(0).dim(), stream);
}

absl::StatusOr<Tensor> PullAllRows(sparse::RemoteEmbedding& table, int64_t count,
                                   absl::Time deadline) {
  return table.Pull(/*step=*/0, /*create=*/false, AllRowIds(count))->Await(deadline);
}

}  // namespace tandem::tasks
