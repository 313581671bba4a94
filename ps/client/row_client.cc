#include "ps/client/row_client.h"

#include <utility>

namespace tandem::ps {

rpc::Future<rpc::Done> RowClient::PushAndCommit(uint32_t slice, std::vector<PushSegment> segments,
                                                const CommitArgs& args) {
  const rpc::Future<rpc::Done> pushed = Push(args.step, slice, std::move(segments)),
                               committed = Commit(args);
  const auto promise = std::make_shared<rpc::Promise<rpc::Done>>();
  const auto future = promise->future();
  pushed.OnReady([promise, committed](const absl::StatusOr<rpc::Done>& push) {
    if (!push.ok()) return promise->Set(push);
    committed.OnReady([promise](const absl::StatusOr<rpc::Done>& commit) { promise->Set(commit); });
  });
  return future;
}

}  // namespace tandem::ps
