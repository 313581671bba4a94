// The embedding tables of a model on parameter servers: their numbers, and their row ids. A model
// counts places from 0 (a symbol is its place, the first item is place 0); servers count ids from
// 1. Only this file converts between the two.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/sparse/remote_embedding.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::tasks {

inline uint64_t RowIdOf(int64_t place) { return static_cast<uint64_t>(place) + 1; }
inline int64_t PlaceOf(uint64_t id) { return static_cast<int64_t>(id) - 1; }
// The ids of the whole table, in order.
std::vector<uint64_t> AllRowIds(int64_t count);

// Makes the tables of a resolved job. Returns null if the embeddings are dense parameters. `stream`
// computes with the rows. `sharers` are the ranks that need the same rows
// (sparse/remote_embedding.h). REQUIRES: all arguments outlive the tables.
std::unique_ptr<sparse::RemoteEmbedding> MakeEmbeddingTables(const Job& job, ps::RowClient* rows,
                                                             Stream* stream,
                                                             comm::ProcessGroup* sharers = nullptr);
// Pulls the present rows `ids` of one table, by its place in the job, [ids.size(), dim]. Creates
// none.
absl::StatusOr<Tensor> PullRows(sparse::RemoteEmbedding& tables, int table,
                                std::vector<uint64_t> ids, absl::Time deadline);

}  // namespace tandem::tasks
