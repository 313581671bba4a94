// The client of tables in this process (`--local`): every replica has one, with its own trainer rank, over one TableHost
// that acts as the whole set of servers. It gives the bits that RemoteClient gives.
// Thread rule: as Client. The host must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/client/client.h"
#include "ps/server/table_host.h"

namespace tandem::ps {

class LocalClient : public Client {
 public:
  LocalClient(TableHost& host, uint32_t trainer, uint32_t num_trainers, const ConsistencySpec& consistency = {})
      : host_(host), trainer_(trainer), num_trainers_(num_trainers), consistency_(consistency) {}

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) override;
  absl::Status Read(const RowsToRead& rows, absl::Time deadline) override;
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override;
  // Copies the gradients: the caller may reuse its buffers when the future completes, which is before the commit.
  rpc::Future<rpc::Done> Accumulate(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override;
  PushName NamePush() override { return {.trainer = trainer_, .sequence = next_sequence_++}; }
  rpc::Future<rpc::Done> AccumulateMerged(uint64_t step, const std::vector<PushName>& names,
                                          std::vector<PushSegment> segments) override;
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  // Refused with the push's error if a push of this client failed since the last Commit.
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  rpc::Future<HashResult> Hash() override;
  rpc::Future<StatisticsReply> Statistics() override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) override;
  rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder, const std::vector<std::string>& files,
                              absl::Time deadline) override;
  // Fails the host, and so every replica of the process: without this one no step can be committed.
  void Abort(absl::Status reason) override { host_.Fail(std::move(reason)); }
  // The host's: role "ps-local".
  absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) override;

 private:
  rpc::Future<rpc::Done> Push(const PushPlace& place, const std::vector<PushSegment>& segments);

  TableHost& host_;
  const uint32_t trainer_, num_trainers_;
  const ConsistencySpec consistency_;
  uint64_t next_sequence_ = 1;
  std::vector<rpc::Future<rpc::Done>> pushes_;  // since the last Commit
};

}  // namespace tandem::ps
