// A client that trains on copies of rows for `geo_steps` steps and then pushes how far each row has come (GEO as in Paddle: local steps,
// then deltas). Servers hear little, and no step waits for another trainer. Window s is steps s * geo_steps + 1 to (s + 1) * geo_steps; a
// step with `flush` ends its window early. In a window a row is pulled once, before its first use. After that this trainer's own optimizer
// updates the copy. The commit of the window's last step pushes (copy - first value) / num_trainers of every row that was updated. Servers
// add deltas: their tables are plain SGD at rate 1, and a delta is a gradient with the other sign. So no trainer overwrites what another
// wrote meanwhile. The next window begins with the sum.
//
// A step's gradient is this trainer's share of the global mean. The copy trains with num_trainers times that, the mean of its own samples.
// Deltas are averaged. With plain SGD and windows of one step the result is that of BSP, to rounding.
// A row lacks at most geo_steps - 1 steps of a trainer that is as fast as this one.
// Optimizer state belongs to this trainer's copy and is never saved: a resumed run begins it anew. Memory: a record, with slots, of every
// row that this trainer ever used, and in a window the rows' first values.
// This client guards gradients (value_guard.h) in place of the servers, and counts them in its Statistics.
// Thread rule: as RowClient. The inner client outlives this one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/caching/forwarding_admin.h"
#include "ps/client/clients.h"

namespace tandem::ps {

struct GeoClientOptions {
  uint32_t num_trainers = 1;
  uint64_t geo_steps = 1;
  uint32_t trainer = 0;  // this one
};

class GeoClient : public RowClient, public ForwardingAdmin, public PooledClient {
 public:
  GeoClient(const Clients& inner, GeoClientOptions options);
  ~GeoClient() override;

  // Creates the copies' tables here, and tables of StoredSpec at the servers.
  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  // FailedPrecondition unless `step` follows the last commit. Rows of step 0 are the servers'.
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override;
  // InvalidArgument also for a row that was not pulled in this window.
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override;
  // The norm is that of this trainer's gradients.
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status reason) override { inner_.rows->Abort(std::move(reason)); }
  // Bags are pooled from the copies.
  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim, float* pooled) override {
    return PullAndPool(*this, step, create, bags, dim, pooled);
  }
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim, const float* gradients) override {
    return PushToBags(*this, step, slice, bags, dim, gradients);
  }
  // FailedPrecondition in the middle of a window.
  rpc::Future<HashResult> Hash() override;
  // Adds what this trainer's tables refused, dropped, mended and clipped: servers see deltas alone.
  rpc::Future<StatisticsReply> Statistics() override { return StatisticsWith(OwnStatistics()); }
  StatisticsReply OwnStatistics() const override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) override;
  // Plain SGD, which adds up deltas. Rows start as those of `table` do.
  TableSpec StoredSpec(const TableSpec& table) const override;
  std::vector<std::string> Report() const override;

 private:
  struct Copies;  // shared with what is in flight

  const Clients inner_;
  const GeoClientOptions options_;
  const std::shared_ptr<Copies> copies_;
};

}  // namespace tandem::ps
