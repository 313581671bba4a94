// One message of a pooled pull or push: bags in, sums of their rows out.
// Thread rule: answers of several messages may be taken at the same time.
// Invariant: parts of a bag add up in the order of the messages, whichever answer came last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/embedding.pb.h"
#include "ps/wire/bags.h"
#include "ps/wire/pooled_cut.h"
#include "rpc/payload.h"

namespace tandem::ps {

// The messages of a call with bags, and a pull's answers.
class PooledMessages {
 public:
  explicit PooledMessages(std::vector<PooledMessage> messages)
      : messages_(std::move(messages)), parts_(messages_.size()), missing_(messages_.size()) {}

  const std::vector<PooledMessage>& messages() const { return messages_; }
  // Takes the answer to messages()[number]. The last answer adds the sums of all to `pooled`.
  // REQUIRES: `pooled` [bags.size(), dim] is zero until then.
  absl::Status Take(size_t number, const Bags& bags, size_t dim, rpc::Payload answer,
                    float* pooled);

 private:
  absl::Status TakePart(size_t number, size_t dim, rpc::Payload answer);

  const std::vector<PooledMessage> messages_;
  std::vector<std::vector<float>> parts_;  // [message], each written by one thread
  std::atomic<size_t> missing_;
};

// Returns a pull's message. `request` has the header, the step and `create`. `owner` keeps the
// message alive.
rpc::Payload EncodePullPooled(uint32_t table, const PooledMessage& message,
                              std::shared_ptr<const void> owner, PullPooledRequest request);
// Returns a push's message. `gradients` [*, dim] are the bags' gradients. `request` has the header,
// the sequence, the step and the slice. `owner` keeps the message alive.
rpc::Payload EncodePushPooled(uint32_t table, const PooledMessage& message,
                              std::shared_ptr<const void> owner, size_t dim, const float* gradients,
                              PushPooledRequest request);

}  // namespace tandem::ps
