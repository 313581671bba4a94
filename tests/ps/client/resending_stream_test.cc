// A stream that breaks, scripted: which messages are sent again, in which order, and that each
// message ends once.
#include "ps/client/resending_stream.h"

#include <atomic>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

// Records the messages sent on all opened streams. The test answers them or breaks the stream.
struct Script {
  absl::Mutex mutex;
  struct Sent {
    int stream;
    std::string text;
    std::shared_ptr<rpc::Promise<rpc::Payload>> promise;
  };
  std::vector<Sent> sent ABSL_GUARDED_BY(mutex);
  int num_streams ABSL_GUARDED_BY(mutex) = 0;

  void AwaitSent(size_t count) {
    absl::MutexLock lock(&mutex);
    auto enough = [&] { return sent.size() >= count; };
    ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20))) << sent.size();
  }
  Sent At(size_t i) {
    absl::MutexLock lock(&mutex);
    return sent.at(i);
  }
};

class ScriptedStream : public rpc::ClientStream {
 public:
  ScriptedStream(Script& script, int number) : script_(script), number_(number) {}
  rpc::Future<rpc::Payload> Send(rpc::Payload message) override {
    auto promise = std::make_shared<rpc::Promise<rpc::Payload>>();
    absl::MutexLock lock(&script_.mutex);
    script_.sent.push_back({number_, std::string(message.Flatten()), promise});
    return promise->future();
  }
  bool broken() const override { return false; }

 private:
  Script& script_;
  const int number_;
};

class ResendingStreamTest : public testing::Test {
 protected:
  ResendingStreamTest() {
    stream_ = ResendingStream::Create(
        [this] {
          absl::MutexLock lock(&script_.mutex);
          return std::make_unique<ScriptedStream>(script_, script_.num_streams++);
        },
        timer_);
  }
  ~ResendingStreamTest() override {
    stream_->Close(absl::CancelledError("end of test"));
    timer_->Stop();
  }
  // Appends how the message ended to `ends_`.
  void Send(const std::string& text, bool wanted = true) {
    stream_->Send({rpc::Payload(text), [wanted] { return wanted; },
                   [this, text](absl::StatusOr<rpc::Payload> answer) {
                     absl::MutexLock lock(&mutex_);
                     ends_.push_back(text + ":" + absl::StatusCodeToString(answer.status().code()));
                   }});
  }
  std::vector<std::string> Ends(size_t count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [&] { return ends_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20)));
    return ends_;
  }
  void Break(const std::vector<size_t>& which, const absl::Status& status) {
    for (size_t i : which) script_.At(i).promise->Set(status);
  }

  Script script_;
  std::shared_ptr<Timer> timer_ = std::make_shared<Timer>();
  std::shared_ptr<ResendingStream> stream_;
  absl::Mutex mutex_;
  std::vector<std::string> ends_ ABSL_GUARDED_BY(mutex_);
};

using Texts = std::vector<std::string>;

TEST_F(ResendingStreamTest, UnansweredMessagesAreSentAgainInOrder) {
  for (const char* text : {"a", "b", "c"}) Send(text);
  script_.AwaitSent(3);
  script_.At(0).promise->Set(rpc::Payload());
  Break({1, 2}, absl::UnavailableError("gone"));
  Send("d");  // during the pause
  script_.AwaitSent(6);
  const char* again[] = {"b", "c", "d"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(script_.At(3 + i).text, again[i]);
    EXPECT_EQ(script_.At(3 + i).stream, 1);
    script_.At(3 + i).promise->Set(rpc::Payload());
  }
  EXPECT_EQ(Ends(4), (Texts{"a:OK", "b:OK", "c:OK", "d:OK"}));
}

// A stopping server cancels its streams. The server that takes its place may answer.
TEST_F(ResendingStreamTest, MessagesOfAStreamThatAStoppingServerCancelsAreSentAgain) {
  Send("a");
  Send("b");
  script_.AwaitSent(2);
  Break({0, 1}, absl::CancelledError("the server is stopping"));
  script_.AwaitSent(4);
  for (size_t i : {size_t{2}, size_t{3}}) {
    EXPECT_EQ(script_.At(i).stream, 1);
    script_.At(i).promise->Set(rpc::Payload());
  }
  EXPECT_EQ(Ends(2), (Texts{"a:OK", "b:OK"}));
}

TEST_F(ResendingStreamTest, MessagesThatNobodyWantsAreNotSentAgain) {
  Send("a", /*wanted=*/false);
  Send("b");
  script_.AwaitSent(2);
  Break({0, 1}, absl::UnavailableError("gone"));
  EXPECT_EQ(Ends(1), (Texts{"a:CANCELLED"}));
  script_.AwaitSent(3);
  EXPECT_EQ(script_.At(2).text, "b");
}

TEST_F(ResendingStreamTest, ARefusalEndsWhatWasSentAndTheNextMessageGetsANewStream) {
  Send("a");
  Send("b");
  script_.AwaitSent(2);
  Break({0, 1}, absl::InvalidArgumentError("bad id"));
  EXPECT_EQ(Ends(2), (Texts{"a:INVALID_ARGUMENT", "b:INVALID_ARGUMENT"}));
  Send("c");
  script_.AwaitSent(3);
  EXPECT_EQ(script_.At(2).stream, 1);
}

TEST_F(ResendingStreamTest, CloseEndsEverythingOnceAndRefusesMore) {
  Send("a");
  script_.AwaitSent(1);
  stream_->Close(absl::AbortedError("over"));
  script_.At(0).promise->Set(rpc::Payload());
  Send("b");
  EXPECT_EQ(Ends(2), (Texts{"a:ABORTED", "b:ABORTED"}));
}

TEST(TimerTest, RunsInOrderOfTimeAndNotWhatWasCancelled) {
  Timer timer;
  absl::Mutex mutex;
  std::vector<int> ran;
  absl::Notification last;
  const absl::Time start = absl::Now();
  const auto add = [&](int number) {
    return [&, number] {
      absl::MutexLock lock(&mutex);
      ran.push_back(number);
    };
  };
  timer.Schedule(start + absl::Milliseconds(30), [&] { last.Notify(); });
  timer.Schedule(start + absl::Milliseconds(20), add(2));
  timer.Schedule(start + absl::Milliseconds(10), add(1));
  timer.Cancel(timer.Schedule(start + absl::Milliseconds(15), add(3)));
  timer.Schedule(absl::InfiniteFuture(), add(4));
  EXPECT_TRUE(last.WaitForNotificationWithTimeout(absl::Seconds(20)));
  timer.Stop();
  timer.Schedule(start, add(5));
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace tandem::ps
