// A client that trains on copies of rows for `geo_steps` steps, then pushes each row's delta (GEO
// in Paddle). Servers get little traffic, and no step waits for another trainer. Window s is steps
// s * geo_steps + 1 to (s + 1) * geo_steps. A step with `flush` ends its window early.
// A row is pulled once per window, before its first use. Then this trainer's own optimizer updates
// the copy. The commit of the window's last step pushes (copy - first value) / num_trainers for
// every updated row. Servers add deltas: their tables are plain SGD at rate 1, and a delta is a
// negated gradient. So no trainer overwrites another trainer's work. The next window begins with
// the sum.
// Thread rule: same as RowClient.
// REQUIRES: the inner client outlives this one.
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
  uint32_t trainer = 0;  // this trainer's rank
};

// A step's gradient is this trainer's share of the global mean. The copy trains with num_trainers
// times the share, which is the mean over this trainer's samples. Deltas are averaged. With plain
// SGD and one-step windows the result equals BSP up to rounding. A row lacks at most geo_steps - 1
// steps of an equally fast trainer.
// Optimizer state belongs to this trainer's copy and is never saved; a resumed run starts it anew.
// Memory: a record, with slots, for every row that this trainer ever used. Within a window the
// rows' first values come on top.
// This client guards gradients (value_guard.h) in place of the servers, and counts them in its
// Statistics.
class GeoClient : public RowClient, public ForwardingAdmin, public PooledClient {
 public:
  GeoClient(const Clients& inner, GeoClientOptions options);
  ~GeoClient() override;

  // Creates the copies' tables here, and tables of StoredSpec at the servers.
  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  // FailedPrecondition unless `step` follows the last commit. Step 0 pulls the servers' rows.
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override;
  // InvalidArgument also for a row that was not pulled in this window.
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                              std::vector<PushSegment> segments) override;
  // The norm covers only this trainer's gradients.
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status reason) override { inner_.rows->Abort(std::move(reason)); }
  // Pools bags from the copies.
  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                    float* pooled) override {
    return PullAndPool(*this, step, create, bags, dim, pooled);
  }
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                    const float* gradients) override {
    return PushToBags(*this, step, slice, bags, dim, gradients);
  }
  // FailedPrecondition in the middle of a window.
  rpc::Future<HashResult> Hash() override;
  // Adds the gradients that this trainer's tables refused, dropped, mended and clipped. Servers see
  // only deltas.
  rpc::Future<StatisticsReply> Statistics() override { return StatisticsWith(OwnStatistics()); }
  StatisticsReply OwnStatistics() const override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder,
                                           absl::Time deadline) override;
  // Returns plain SGD, which adds deltas. Rows have the same initial values as rows of `table`.
  TableSpec StoredSpec(const TableSpec& table) const override;
  std::vector<std::string> Report() const override;

 private:
  struct Copies;  // shared with operations in flight

  const Clients inner_;
  const GeoClientOptions options_;
  const std::shared_ptr<Copies> copies_;
};

}  // namespace tandem::ps
