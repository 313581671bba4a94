// A TableAdmin that forwards every call unchanged to another TableAdmin. The clients of ps/caching
// derive from it and override some calls.
// Thread rule: same as RowClient.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/embedding.pb.h"
#include "ps/client/table_admin.h"

namespace tandem::ps {

class ForwardingAdmin : public TableAdmin {
 public:
  // REQUIRES: `tables` outlives this object.
  explicit ForwardingAdmin(TableAdmin& tables) : tables_(tables) {}

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override {
    return tables_.CreateTables(tables, timeout);
  }
  absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) override {
    return tables_.Assign(rows, deadline);
  }
  absl::Status Read(const RowsToRead& rows, absl::Time deadline) override {
    return tables_.Read(rows, deadline);
  }
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder,
                                           absl::Time deadline) override {
    return tables_.Save(step, folder, deadline);
  }
  rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder,
                              const std::vector<std::string>& files, absl::Time deadline) override {
    return tables_.Load(step, folder, files, deadline);
  }
  rpc::Future<HashResult> Hash() override { return tables_.Hash(); }
  rpc::Future<StatisticsReply> Statistics() override { return tables_.Statistics(); }
  StatisticsReply OwnStatistics() const override { return tables_.OwnStatistics(); }
  void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) override {
    tables_.TraceSteps(std::move(tracer), first, last);
  }
  absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) override {
    return tables_.TakeTraces(timeout);
  }
  TableSpec StoredSpec(const TableSpec& table) const override { return tables_.StoredSpec(table); }
  std::vector<std::string> Report() const override { return tables_.Report(); }

 protected:
  TableAdmin& tables() const { return tables_; }
  // Returns the tables' statistics plus `own`, the gradients handled before they left this process.
  rpc::Future<StatisticsReply> StatisticsWith(StatisticsReply own) {
    const auto promise = std::make_shared<rpc::Promise<StatisticsReply>>();
    const rpc::Future<StatisticsReply> future = promise->future();
    tables_.Statistics().OnReady(
        [own = std::move(own), promise](absl::StatusOr<StatisticsReply> total) {
          if (total.ok()) MergeStatistics(own, &*total);
          promise->Set(std::move(total));
        });
    return future;
  }

 private:
  TableAdmin& tables_;
};

}  // namespace tandem::ps
