#include "trainer/comm/device/failure_board.h"

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"

namespace tandem::comm {
namespace {

Collective AllReduceNumber(uint64_t sequence, int64_t count = 12) {
  Collective collective;
  collective.description.sequence = sequence;
  collective.description.count = count;
  collective.description.kind = CollectiveKind::ALL_REDUCE;
  collective.description.dtype = DType::F32;
  return collective;
}

// Three ranks of one store. Rank 0 has begun operation 4. The other ranks' watches run only while
// rank 0 asks.
class FailureBoardTest : public testing::Test {
 protected:
  FailureBoardTest() {
    for (int rank = 0; rank < 3; ++rank)
      boards_.push_back(std::make_unique<FailureBoard>(&store_, "world", rank, 3));
    boards_[0]->Begin(AllReduceNumber(4));
  }
  template <class Ask>
  auto WhileWatched(const std::vector<int>& watching, const Ask& ask) {
    std::atomic<bool> done{false};
    std::vector<std::thread> watches;
    for (const int rank : watching) {
      watches.emplace_back([&, rank] {
        while (!done) {
          EXPECT_TRUE(boards_[rank]->Watch().ok());
          absl::SleepFor(absl::Milliseconds(1));
        }
      });
    }
    const auto answer = ask();
    done = true;
    for (std::thread& watch : watches) watch.join();
    return answer;
  }
  FailureBoard::Missing InquireWhileWatched(const std::vector<int>& watching,
                                            const Collective& mine) {
    return WhileWatched(
        watching, [&] { return boards_[0]->Inquire(mine, absl::Now() + absl::Milliseconds(300)); });
  }

  rpc::MemoryStore store_;
  std::vector<std::unique_ptr<FailureBoard>> boards_;
};

TEST_F(FailureBoardTest, RankThatDoesNotAnswerIsMissing) {
  boards_[1]->Begin(AllReduceNumber(4));
  const auto missing = InquireWhileWatched({1}, AllReduceNumber(4));
  EXPECT_EQ(missing.ranks, "rank 2");
  EXPECT_TRUE(missing.mismatch.ok()) << missing.mismatch;
  // An earlier answer does not count.
  const auto gone = [&] {
    return boards_[0]->InquireWhoIsGone(absl::Now() + absl::Milliseconds(100));
  };
  EXPECT_EQ(WhileWatched({2}, gone), "rank 1");
}

TEST_F(FailureBoardTest, RankThatIsBehindOrHasBegunNothingIsMissing) {
  boards_[1]->Begin(AllReduceNumber(3));
  EXPECT_EQ(InquireWhileWatched({1, 2}, AllReduceNumber(4)).ranks, "rank 1, rank 2");
}

TEST_F(FailureBoardTest, RankThatIsAheadIsNotMissingAndDoesNotDisagree) {
  boards_[1]->Begin(AllReduceNumber(5, 99));
  boards_[2]->Begin(AllReduceNumber(4));
  const auto missing = InquireWhileWatched({1, 2}, AllReduceNumber(4));
  EXPECT_EQ(missing.ranks, "");
  EXPECT_TRUE(missing.mismatch.ok()) << missing.mismatch;
}

TEST_F(FailureBoardTest, AnotherOperationInThePlaceOfThisOneIsNamed) {
  boards_[1]->Begin(AllReduceNumber(4, 13));
  boards_[2]->Begin(AllReduceNumber(4));
  const auto missing = InquireWhileWatched({1, 2}, AllReduceNumber(4));
  EXPECT_EQ(missing.ranks, "");
  EXPECT_TRUE(absl::IsInternal(missing.mismatch)) << missing.mismatch;
  for (const char* text : {"(12 x f32", "(13 x f32", "rank 1"}) {
    EXPECT_TRUE(absl::StrContains(std::string(missing.mismatch.message()), text))
        << missing.mismatch;
  }
}

TEST_F(FailureBoardTest, UnequalCountsOfAPairAreNamedWhoeverAsks) {
  const auto exchange = [](std::vector<int64_t> send_counts, std::vector<int64_t> recv_counts) {
    Collective collective = AllReduceNumber(4, 0);
    collective.description.kind = CollectiveKind::ALL_TO_ALL_V;
    collective.send_counts = std::move(send_counts);
    collective.recv_counts = std::move(recv_counts);
    return collective;
  };
  boards_[2]->Begin(exchange({1, 1, 1}, {1, 1, 1}));
  for (const int64_t sent : {1, 7}) {  // rank 1 sends too much, or expects too much
    boards_[1]->Begin(exchange({sent, 1, 1}, {8 - sent, 1, 1}));
    const auto missing = InquireWhileWatched({1, 2}, exchange({1, 1, 1}, {1, 1, 1}));
    const std::string wanted = sent == 7 ? "rank 1 sends 7 elements to rank 0, which expects 1"
                                         : "rank 0 sends 1 elements to rank 1, which expects 7";
    EXPECT_TRUE(absl::StrContains(std::string(missing.mismatch.message()), wanted))
        << missing.mismatch;
  }
}

TEST_F(FailureBoardTest, TheFirstReasonReachesAllOthersAndKeepsItsCode) {
  for (auto& board : boards_) EXPECT_TRUE(board->Watch().ok());
  boards_[1]->GiveUp(absl::UnavailableError("the cable was cut"));
  boards_[2]->GiveUp(absl::InternalError("too late"));
  for (int rank : {0, 2})
    EXPECT_EQ(boards_[rank]->Watch(),
              absl::UnavailableError("aborted by rank 1: the cable was cut"));
  EXPECT_TRUE(boards_[1]->Watch().ok());
}

// A store whose next Gets take longer than anybody waits.
class SlowStore : public rpc::MemoryStore {
 public:
  absl::StatusOr<std::string> Get(const std::string& key, absl::Time deadline) override {
    if (slow_gets-- > 0) return absl::DeadlineExceededError(key);
    return MemoryStore::Get(key, deadline);
  }

  std::atomic<int> slow_gets{0};
};

TEST(FailureBoardStoreTest, AReasonThatASlowStoreDoesNotBringAtOnceComesLater) {
  SlowStore store;
  FailureBoard gives_up(&store, "world", 0, 2), watches(&store, "world", 1, 2);
  gives_up.GiveUp(absl::UnavailableError("the cable was cut"));
  store.slow_gets = 2;
  EXPECT_TRUE(watches.Watch().ok());
  EXPECT_TRUE(watches.Watch().ok());
  EXPECT_EQ(watches.Watch(), absl::UnavailableError("aborted by rank 0: the cable was cut"));
}

TEST_F(FailureBoardTest, GroupsOfOtherNamesHearNothing) {
  FailureBoard other(&store_, "world/split0.1", 0, 3);
  boards_[1]->GiveUp(absl::UnavailableError("the cable was cut"));
  EXPECT_TRUE(other.Watch().ok());
}

}  // namespace
}  // namespace tandem::comm
