// The client of tables in this process (`--local`). Every replica has one, with its own trainer
// rank, over one shared TableHost. The host acts as the whole set of servers. LocalClient gives the
// same bits as RemoteClient.
// Thread rule: same as RowClient.
// REQUIRES: the host outlives the client.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/client/call_tracer.h"
#include "ps/client/merged_pushes.h"
#include "ps/client/pooled_client.h"
#include "ps/client/row_client.h"
#include "ps/client/table_admin.h"
#include "ps/server/table_host.h"

namespace tandem::ps {

class LocalClient : public RowClient, public TableAdmin, public PooledClient, public MergedPushes {
 public:
  LocalClient(TableHost& host, uint32_t trainer, uint32_t num_trainers,
              const ConsistencySpec& consistency = {})
      : host_(host), trainer_(trainer), num_trainers_(num_trainers), consistency_(consistency) {}

  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override;
  // Copies the gradients. The future completes before the commit; then the caller may reuse its
  // buffers.
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                              std::vector<PushSegment> segments) override;
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  // Fails with the push's error if a push of this client failed since the last Commit.
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  // Fails the host, and so every replica of the process, because no step can be committed without
  // this replica.
  void Abort(absl::Status reason) override { host_.Fail(std::move(reason)); }

  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                    float* pooled) override {
    return PullAndPool(*this, step, create, bags, dim, pooled);
  }
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                    const float* gradients) override {
    return PushToBags(*this, step, slice, bags, dim, gradients);
  }

  PushName NamePush() override { return {.trainer = trainer_, .sequence = next_sequence_++}; }
  rpc::Future<rpc::Done> PushMerged(uint64_t step, const std::vector<PushName>& names,
                                    std::vector<PushSegment> segments) override;

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) override;
  absl::Status Read(const RowsToRead& rows, absl::Time deadline) override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder,
                                           absl::Time deadline) override;
  rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder,
                              const std::vector<std::string>& files, absl::Time deadline) override;
  rpc::Future<HashResult> Hash() override;
  rpc::Future<StatisticsReply> Statistics() override;
  void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) override {
    tracer_.TraceSteps(std::move(tracer), first, last);
  }
  // Returns the host's trace, role "ps-local".
  absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) override;

 private:
  rpc::Future<rpc::Done> PushAt(const PushPlace& place, const std::vector<PushSegment>& segments);

  TableHost& host_;
  const uint32_t trainer_, num_trainers_;
  const ConsistencySpec consistency_;
  CallTracer tracer_;
  uint64_t next_sequence_ = 1;
  std::vector<rpc::Future<rpc::Done>> pushes_;  // since the last Commit
};

}  // namespace tandem::ps
