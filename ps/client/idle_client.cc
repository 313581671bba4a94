#include "ps/client/idle_client.h"

#include "proto/embedding.pb.h"
#include "proto/trace.pb.h"

namespace tandem::ps {

namespace {

rpc::Future<rpc::Done> ReadyDone() { return rpc::Future<rpc::Done>::Ready(rpc::Done()); }

absl::Status OfOneTrainer() {
  return absl::UnimplementedError("this trainer has no client: tensor-parallel rank 0 has it");
}

}  // namespace

rpc::Future<rpc::Done> IdleClient::Pull(uint64_t, bool, std::vector<PullSegment>) {
  return ReadyDone();
}
rpc::Future<rpc::Done> IdleClient::Push(uint64_t, uint32_t, std::vector<PushSegment>) {
  return ReadyDone();
}
rpc::Future<absl::uint128> IdleClient::GradientNorm(uint64_t) {
  return rpc::Future<absl::uint128>::Ready(absl::uint128(0));
}
rpc::Future<rpc::Done> IdleClient::Commit(const CommitArgs&) { return ReadyDone(); }

rpc::Future<rpc::Done> IdleClient::PullPooled(uint64_t, bool, const Bags&, size_t, float*) {
  return ReadyDone();
}
rpc::Future<rpc::Done> IdleClient::PushPooled(uint64_t, uint32_t, const Bags&, size_t,
                                              const float*) {
  return ReadyDone();
}

absl::Status IdleClient::CreateTables(const std::vector<TableSpec>&, absl::Duration) {
  return absl::OkStatus();
}
absl::Status IdleClient::Assign(const RowsToAssign&, absl::Time) { return OfOneTrainer(); }
absl::Status IdleClient::Read(const RowsToRead&, absl::Time) { return OfOneTrainer(); }
rpc::Future<std::vector<SavedFile>> IdleClient::Save(uint64_t, const std::string&, absl::Time) {
  return rpc::Future<std::vector<SavedFile>>::Ready(OfOneTrainer());
}
rpc::Future<rpc::Done> IdleClient::Load(uint64_t, const std::string&,
                                        const std::vector<std::string>&, absl::Time) {
  return rpc::Future<rpc::Done>::Ready(OfOneTrainer());
}
rpc::Future<HashResult> IdleClient::Hash() { return rpc::Future<HashResult>::Ready(HashResult()); }
rpc::Future<StatisticsReply> IdleClient::Statistics() {
  return rpc::Future<StatisticsReply>::Ready(StatisticsReply());
}
absl::StatusOr<std::vector<RoleTrace>> IdleClient::TakeTraces(absl::Duration) {
  return std::vector<RoleTrace>();
}

}  // namespace tandem::ps
