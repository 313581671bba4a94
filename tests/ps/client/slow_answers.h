// A client whose pulls are answered when the test says so, with what the servers had when they were asked.
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

  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override {
    const auto pulled = ForwardingClient::Pull(step, create, std::move(segments));
    if (!hold_) return pulled;
    EXPECT_TRUE(pulled.Wait(absl::Now() + absl::Seconds(30)).ok());
    return held_.future();
  }
  // Of one pull, the next.
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
