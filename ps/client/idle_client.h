// The client of a trainer that needs none, because a tensor-parallel neighbour pulls and pushes for
// both. All calls complete at once and do nothing. So the trainer takes the same steps as others.
// Thread rule: same as RowClient.
#pragma once

#include <string>
#include <vector>

#include "ps/client/pooled_client.h"
#include "ps/client/row_client.h"
#include "ps/client/table_admin.h"

namespace tandem::ps {

class IdleClient final : public RowClient, public TableAdmin, public PooledClient {
 public:
  // REQUIRES: nobody reads the rows.
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override;
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                              std::vector<PushSegment> segments) override;
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;  // 0
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status /*reason*/) override {}

  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                    float* pooled) override;
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                    const float* gradients) override;

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  // The calls of one trainer for all are never this one's: Unimplemented.
  absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) override;
  absl::Status Read(const RowsToRead& rows, absl::Time deadline) override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder,
                                           absl::Time deadline) override;
  rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder,
                              const std::vector<std::string>& files, absl::Time deadline) override;
  rpc::Future<HashResult> Hash() override;
  rpc::Future<StatisticsReply> Statistics() override;
  void TraceSteps(std::shared_ptr<Tracer> /*tracer*/, uint64_t /*first*/,
                  uint64_t /*last*/) override {}
  absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) override;
};

}  // namespace tandem::ps
