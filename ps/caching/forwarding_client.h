// A client around another one, to which every verb goes on as it came: what a client that changes some verbs (client_cached,
// client_geo) builds upon. Thread rule: as Client.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/client/client.h"

namespace tandem::ps {

class ForwardingClient : public Client {
 public:
  explicit ForwardingClient(std::unique_ptr<Client> client) : client_(std::move(client)) {}

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override {
    return client_->CreateTables(tables, timeout);
  }
  absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) override { return client_->Assign(rows, deadline); }
  absl::Status Read(const RowsToRead& rows, absl::Time deadline) override { return client_->Read(rows, deadline); }
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override {
    return client_->Pull(step, create, std::move(segments));
  }
  rpc::Future<rpc::Done> Accumulate(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override {
    return client_->Accumulate(step, slice, std::move(segments));
  }
  PushName NamePush() override { return client_->NamePush(); }
  rpc::Future<rpc::Done> AccumulateMerged(uint64_t step, const std::vector<PushName>& names,
                                          std::vector<PushSegment> segments) override {
    return client_->AccumulateMerged(step, names, std::move(segments));
  }
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override { return client_->GradientNorm(step); }
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override { return client_->Commit(args); }
  // AccumulateAndCommit stays Client's, which goes by these two.
  rpc::Future<HashResult> Hash() override { return client_->Hash(); }
  rpc::Future<StatisticsReply> Statistics() override { return client_->Statistics(); }
  StatisticsReply OwnStatistics() const override { return client_->OwnStatistics(); }
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) override {
    return client_->Save(step, folder, deadline);
  }
  rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder, const std::vector<std::string>& files,
                              absl::Time deadline) override {
    return client_->Load(step, folder, files, deadline);
  }
  void Abort(absl::Status reason) override { client_->Abort(std::move(reason)); }
  void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) override {
    client_->TraceSteps(std::move(tracer), first, last);
  }
  absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) override { return client_->TakeTraces(timeout); }
  TableSpec StoredSpec(const TableSpec& table) const override { return client_->StoredSpec(table); }
  std::vector<std::string> Report() const override { return client_->Report(); }

 protected:
  Client& client() const { return *client_; }
  // The servers', with what became of gradients before they left this process.
  rpc::Future<StatisticsReply> StatisticsWith(StatisticsReply own) {
    const auto promise = std::make_shared<rpc::Promise<StatisticsReply>>();
    const rpc::Future<StatisticsReply> future = promise->future();
    client_->Statistics().OnReady([own = std::move(own), promise](absl::StatusOr<StatisticsReply> total) {
      if (total.ok()) MergeStatistics(own, &*total);
      promise->Set(std::move(total));
    });
    return future;
  }

 private:
  const std::unique_ptr<Client> client_;
};

}  // namespace tandem::ps
