#include "trainer/tasks/embedding_table.h"

#include <numeric>

#include "kernels/base/status_macros.h"
#include "proto/embedding.pb.h"
#include "proto/job.pb.h"
#include "trainer/job/job_options.h"

namespace tandem::tasks {

std::vector<uint64_t> AllRowIds(int64_t count) {
  std::vector<uint64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), RowIdOf(0));
  return ids;
}

std::unique_ptr<sparse::RemoteEmbedding> MakeEmbeddingTables(const Job& job, ps::RowClient* rows,
                                                             Stream* stream,
                                                             comm::ProcessGroup* sharers) {
  std::vector<sparse::RemoteTable> tables;
  for (const TableSpec& spec : job::TableSpecsOf(job))
    tables.push_back({spec.number(), spec.dim()});
  if (tables.empty()) return nullptr;
  return std::make_unique<sparse::RemoteEmbedding>(rows, std::move(tables), stream, sharers);
}

absl::StatusOr<Tensor> PullRows(sparse::RemoteEmbedding& tables, int table,
                                std::vector<uint64_t> ids, absl::Time deadline) {
  std::vector<std::vector<uint64_t>> of_tables(tables.tables().size());
  of_tables[table] = std::move(ids);
  const auto pulled = tables.Pull(/*step=*/0, /*create=*/false, std::move(of_tables));
  ASSIGN_OR_RETURN(const std::vector<Tensor> rows, pulled->Await(deadline));
  return rows[table];
}

}  // namespace tandem::tasks
