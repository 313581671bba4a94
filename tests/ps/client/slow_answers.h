// A client that holds back answers to pulls until the test releases them. A held pull returns rows
// as of its request.
#pragma once

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/ps/forwarding_client.h"

namespace tandem::ps {

class SlowAnswers : public ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;

  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override {
    const auto pulled = ForwardingClient::Pull(step, create, std::move(segments));
    if (!hold_) return pulled;
    EXPECT_TRUE(pulled.Wait(absl::Now() + absl::Seconds(30)).ok());
    return held_.future();
  }
  // Holds back the answer to the next pull.
  void Hold() { hold_ = true; }
  void Release() {
    hold_ = false;
    held_.Set(rpc::Done());
  }

 private:
  bool hold_ = false;
  rpc::Promise<rpc::Done> held_;
};

}  // namespace tandem::ps
