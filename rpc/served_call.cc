#include "rpc/served_call.h"

#include <atomic>
#include <utility>

#include "kernels/base/check.h"

namespace tandem::rpc {

namespace {

// Lets one message be answered once. Answers Cancelled when the handler drops it.
class OneReply {
 public:
  explicit OneReply(std::shared_ptr<ServedCall> call) : call_(std::move(call)) {}
  ~OneReply() {
    if (!answered_)
      call_->Answer(absl::CancelledError("the server dropped the call without an answer"));
  }
  void Answer(absl::StatusOr<Payload> answer) {
    TANDEM_CHECK(!answered_.exchange(true)) << "a message was answered twice";
    call_->Answer(std::move(answer));
  }
  std::shared_ptr<Buffer> Allocate(size_t num_bytes) { return call_->Allocate(num_bytes); }

 private:
  const std::shared_ptr<ServedCall> call_;
  std::atomic<bool> answered_{false};
};

}  // namespace

Reply MakeReply(std::shared_ptr<ServedCall> call) {
  auto one = std::make_shared<OneReply>(std::move(call));
  return Reply([one](absl::StatusOr<Payload> answer) { one->Answer(std::move(answer)); },
               [one](size_t num_bytes) { return one->Allocate(num_bytes); });
}

}  // namespace tandem::rpc
