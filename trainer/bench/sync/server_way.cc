#include <array>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/bench/members/members.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/way.h"

namespace tandem::bench {

namespace {

constexpr uint32_t kTable = 1;

absl::Status Wait(const rpc::Future<rpc::Done>& future) {
  return future.Wait(absl::Now() + kBenchTimeout + absl::Seconds(1)).status();
}

class ServerWay final : public SyncWay {
 public:
  ServerWay(const SyncPoint& point, uint32_t trainer, ps::RemoteClient* client)
      : point_(point), trainer_(trainer), client_(*client) {
    for (uint64_t batch = 0; batch < kSyncBatches; ++batch)
      ids_[batch] = IdsOf(point, trainer, batch);
  }

  absl::Status MakeTable() {
    TableSpec spec;
    spec.set_name("weights");
    spec.set_number(kTable);
    spec.set_dim(point_.dim());
    spec.set_optimizer(SPARSE_ADAGRAD);
    spec.set_epsilon(kSyncEpsilon);
    return client_.CreateTables({spec}, kBenchTimeout);
  }

  void MakeGradients(uint64_t step) override {
    const std::vector<uint64_t>& ids = Ids(step);
    gradients_.resize(ids.size() * point_.dim());
    float* next = gradients_.data();
    for (const uint64_t id : ids) {
      for (uint32_t column = 0; column < point_.dim(); ++column)
        *next++ = GradientOf(trainer_, id, column, step);
    }
    rows_.resize(Ids(step + 1).size() * point_.dim());
  }

  // The pull is sent behind the commit and waits for the commit at the server.
  absl::Status Synchronise(uint64_t step) override {
    const auto pushed =
        client_.Push(step, /*slice=*/trainer_,
                     {{.table = kTable, .ids = Ids(step), .gradients = gradients_.data()}});
    const auto committed =
        client_.Commit({.step = step, .rates = {{.table = kTable, .learning_rate = kSyncRate}}});
    const auto pulled = client_.Pull(
        step + 1, /*create=*/true, {{.table = kTable, .ids = Ids(step + 1), .rows = rows_.data()}});
    const absl::Status results[] = {Wait(pushed), Wait(committed), Wait(pulled)};
    for (const absl::Status& result : results) RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> Read(const std::vector<uint64_t>& ids) override {
    std::vector<float> rows(ids.size() * point_.dim());
    RETURN_IF_ERROR(Wait(
        client_.Pull(0, /*create=*/false, {{.table = kTable, .ids = ids, .rows = rows.data()}})));
    return rows;
  }
  rpc::Traffic traffic() const override {
    rpc::Traffic sum;
    for (uint32_t server = 0; server < point_.servers(); ++server) sum += client_.traffic(server);
    return sum;
  }

 private:
  const std::vector<uint64_t>& Ids(uint64_t step) const { return ids_[step % kSyncBatches]; }

  const SyncPoint point_;
  const uint32_t trainer_;
  ps::RemoteClient& client_;
  std::array<std::vector<uint64_t>, kSyncBatches> ids_;
  std::vector<float> gradients_, rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SyncWay>> MakeServerWay(const SyncPoint& point, uint32_t trainer,
                                                       ps::RemoteClient* client) {
  auto way = std::make_unique<ServerWay>(point, trainer, client);
  RETURN_IF_ERROR(way->MakeTable());
  return way;
}

}  // namespace tandem::bench
