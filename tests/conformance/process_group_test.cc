// One suite for every ProcessGroup: every operation and element type, against closed forms from
// inputs that differ per rank.
// Also covers ranks that fail, disagree or do not come.
#include "trainer/comm/process_group.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "kernels/base/random.h"
#include "tests/conformance/group_harness.h"
#include "trainer/comm/ring_order.h"
#include "trainer/comm/text.h"

namespace tandem::comm {
namespace {

// Groups over hosts have two levels with 4 and 6 ranks only (host_ranks.cc).
std::vector<std::tuple<Kind, int>> KindsAndSizes() {
  std::vector<std::tuple<Kind, int>> all;
  for (const Kind kind : TestedKinds()) {
    for (const int size : {1, 2, 3, 4, 7}) all.emplace_back(kind, size);
    if (kind == Kind::HOSTS) all.emplace_back(kind, 6);
  }
  return all;
}

// Small integers, exact in every type while no sum wraps.
template <class T>
T Value(int rank, int64_t i) {
  return static_cast<T>((rank + 1) * (i % 7 + 1));
}

template <class T>
Array<T> Values(int rank, int64_t count) {
  Array<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = Value<T>(rank, i);
  return values;
}

template <class T>
ArrayView View(Array<T>& values) {
  return DenseView(values.data(), {static_cast<int64_t>(values.size())});
}

// Counts of zero, one, odd, and several blocks of the ring.
std::vector<int64_t> Counts(int size) { return {0, 1, 1001, 2 * kChunkElements * size + 777}; }

class ProcessGroupTest : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  Kind kind() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  void Run(const RankBody& body) { RunRanks(kind(), size(), body); }
};

template <class T>
void CheckAllReduce(ProcessGroup& group, int64_t count, CollectiveArgs args, T factor) {
  Array<T> values = Values<T>(group.rank(), count);
  ASSERT_TRUE(group.AllReduce(View(values), args).Wait(Soon()).ok());
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i)
    wrong += values[i] != static_cast<T>(factor * static_cast<T>(i % 7 + 1));
  EXPECT_EQ(wrong, 0) << "of " << count << " elements at rank " << group.rank();
}

template <class T>
void CheckAllReduces(ProcessGroup& group, int64_t count) {
  const T n = static_cast<T>(group.size());
  const T sum = static_cast<T>(group.size() * (group.size() + 1) / 2);
  for (SumOrder order : kSumOrders)
    CheckAllReduce<T>(group, count, Args(ReduceOp::SUM, order), sum);
  CheckAllReduce<T>(group, count, Args(ReduceOp::MAX), n);
  CheckAllReduce<T>(group, count, Args(ReduceOp::MIN), T{1});
}

TEST_P(ProcessGroupTest, AllReduceOfAnyCountIsTheClosedForm) {
  Run([this](ProcessGroup& group) {
    for (int64_t count : Counts(size())) CheckAllReduces<float>(group, count);
  });
}

TEST_P(ProcessGroupTest, AllReduceOfEveryTypeIsTheClosedForm) {
  Run([this](ProcessGroup& group) {
    for (int64_t count : {7, 100003}) {
      CheckAllReduces<double>(group, count);
      CheckAllReduces<int64_t>(group, count);
      CheckAllReduces<uint64_t>(group, count);
      CheckAllReduces<uint8_t>(group, count);
    }
  });
}

TEST_P(ProcessGroupTest, EveryCollectiveIsASpanOfItsStreamsTracer) {
  Run([this](ProcessGroup& group) {
    ThreadPool pool(1);
    Stream stream(&pool);
    Tracer tracer;
    const int n = size(), next = (group.rank() + 1) % n, previous = (group.rank() + n - 1) % n;
    Array<float> one(10), all(10 * n);
    const std::vector<int64_t> counts(n, 10);
    const auto run = [&](CollectiveArgs args) {
      args.stream = &stream;
      ASSERT_TRUE(group.AllReduce(View(one), args).Wait(Soon()).ok());
      ASSERT_TRUE(group.AllGather(View(all), View(one), args).Wait(Soon()).ok());
      ASSERT_TRUE(group.ReduceScatter(View(one), View(all), args).Wait(Soon()).ok());
      ASSERT_TRUE(group.Broadcast(View(one), 0, args).Wait(Soon()).ok());
      Array<float> other(10 * n);
      ASSERT_TRUE(group.AllToAllV(View(other), counts, View(all), counts, args).Wait(Soon()).ok());
      if (n > 1) {
        Array<float> received(10);
        const bool even = group.rank() % 2 == 0;
        const Work first =
            even ? group.Send(View(one), next, args) : group.Recv(View(received), previous, args);
        const Work second =
            even ? group.Recv(View(received), previous, args) : group.Send(View(one), next, args);
        ASSERT_TRUE(first.Wait(Soon()).ok());
        ASSERT_TRUE(second.Wait(Soon()).ok());
      }
      ASSERT_TRUE(group.Barrier(args).Wait(Soon()).ok());
    };
    run({});  // not traced
    stream.set_tracer(&tracer);
    const int64_t before = MonotonicNanoseconds();
    run({});
    const int64_t after = MonotonicNanoseconds();

    std::vector<std::pair<std::string, double>> expected = {{"all_reduce", 40},
                                                            {"all_gather", 40 * n},
                                                            {"reduce_scatter", 40 * n},
                                                            {"broadcast", 40},
                                                            {"all_to_all_v", 40 * n},
                                                            {"send", 40},
                                                            {"recv", 40},
                                                            {"barrier", 0}};
    if (n == 1)
      expected.erase(expected.begin() + 5, expected.begin() + 7);
    else if (group.rank() % 2 == 1)
      std::swap(expected[5], expected[6]);
    std::vector<std::pair<std::string, double>> found;
    int64_t end = before;
    for (const Span& span : tracer.Take()) {
      found.emplace_back(span.name, span.bytes);
      EXPECT_EQ(span.kind, SpanKind::COLLECTIVE);
      EXPECT_GE(span.begin_ns, end) << span.name << " overlaps the one before";
      EXPECT_GE(span.end_ns, span.begin_ns);
      end = span.end_ns;
    }
    EXPECT_LE(end, after);
    EXPECT_EQ(found, expected);
  });
}

TEST_P(ProcessGroupTest, BytesMovedCountAnAllReduceTwiceAndOthersOnce) {
  Run([this](ProcessGroup& group) {
    const int n = size();
    Array<float> one(10), all(10 * n);
    ASSERT_TRUE(group.AllReduce(View(one), Args()).Wait(Soon()).ok());
    EXPECT_EQ(group.bytes_moved(), n > 1 ? 80u : 0u);
    ASSERT_TRUE(group.AllGather(View(all), View(one), Args()).Wait(Soon()).ok());
    ASSERT_TRUE(group.ReduceScatter(View(one), View(all), Args()).Wait(Soon()).ok());
    ASSERT_TRUE(group.Broadcast(View(one), 0, Args()).Wait(Soon()).ok());
    EXPECT_EQ(group.bytes_moved(), n > 1 ? 80u + 80u * static_cast<uint64_t>(n) + 40u : 0u);
  });
}

TEST_P(ProcessGroupTest, AllGatherPutsRankRAtPlaceR) {
  Run([this](ProcessGroup& group) {
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{1001}, int64_t{200001}}) {
      Array<float> input = Values<float>(group.rank(), count), output(count * size(), -1), expected;
      ASSERT_TRUE(group.AllGather(View(output), View(input), Args()).Wait(Soon()).ok());
      for (int r = 0; r < size(); ++r) {
        const Array<float> part = Values<float>(r, count);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(output == expected) << count;
    }
  });
}

TEST_P(ProcessGroupTest, ReduceScatterGivesEachRankTheSumOfItsPart) {
  Run([this](ProcessGroup& group) {
    for (SumOrder order : kSumOrders) {
      for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{1001}, int64_t{150001}}) {
        Array<double> input = Values<double>(group.rank(), count * size()), output(count, -1),
                      expected(count);
        ASSERT_TRUE(group.ReduceScatter(View(output), View(input), Args(ReduceOp::SUM, order))
                        .Wait(Soon())
                        .ok());
        for (int64_t i = 0; i < count; ++i) {
          expected[i] = size() * (size() + 1) / 2 * Value<double>(0, group.rank() * count + i);
        }
        EXPECT_TRUE(output == expected) << count;
      }
    }
  });
}

TEST_P(ProcessGroupTest, BroadcastGivesEverybodyTheRootsArrayFromEveryRoot) {
  Run([this](ProcessGroup& group) {
    for (int root = 0; root < size(); ++root) {
      for (int64_t count : {0, 1, 1001, 300001}) {
        Array<uint64_t> values = Values<uint64_t>(group.rank(), count);
        ASSERT_TRUE(group.Broadcast(View(values), root, Args()).Wait(Soon()).ok());
        EXPECT_TRUE(values == Values<uint64_t>(root, count)) << count;
      }
    }
  });
}

TEST_P(ProcessGroupTest, HalfPrecisionArraysAreCopiedBitForBit) {
  Run([this](ProcessGroup& group) {
    Array<uint16_t> input(1003, static_cast<uint16_t>(0x7f81 + group.rank())),
        output(1003 * size());
    const ArrayView from(input.data(), DType::BF16, {1003}),
        to(output.data(), DType::BF16, {size(), 1003});
    ASSERT_TRUE(group.AllGather(to, from, Args()).Wait(Soon()).ok());
    for (int r = 0; r < size(); ++r) EXPECT_EQ(output[r * 1003 + 1002], 0x7f81 + r);
  });
}

TEST_P(ProcessGroupTest, AllToAllVDeliversUnevenAndEmptyMessages) {
  Run([this](ProcessGroup& group) {
    // Rank s sends scale * (s + 2 t) elements to rank t: none from 0 to 0, several phases at the
    // largest scale.
    for (int64_t scale : {1, 37, 20000}) {
      auto count = [&](int s, int t) { return scale * (s + 2 * t); };
      auto element = [](int s, int t, int64_t i) {
        return static_cast<float>(s * 1000 + t * 100 + i % 97);
      };
      std::vector<int64_t> send_counts, recv_counts;
      Array<float> input, expected;
      for (int r = 0; r < size(); ++r) {
        send_counts.push_back(count(group.rank(), r));
        recv_counts.push_back(count(r, group.rank()));
        for (int64_t i = 0; i < send_counts.back(); ++i)
          input.push_back(element(group.rank(), r, i));
        for (int64_t i = 0; i < recv_counts.back(); ++i)
          expected.push_back(element(r, group.rank(), i));
      }
      Array<float> output(expected.size(), -1);
      ASSERT_TRUE(group.AllToAllV(View(output), recv_counts, View(input), send_counts, Args())
                      .Wait(Soon())
                      .ok());
      EXPECT_TRUE(output == expected) << scale;
    }
  });
}

TEST_P(ProcessGroupTest, MessagesBetweenEachPairArriveInOrder) {
  Run([this](ProcessGroup& group) {
    // Sends to the right in a ring. Even ranks send first, because a message may be longer than the
    // channel.
    const int right = (group.rank() + 1) % size(), left = (group.rank() + size() - 1) % size();
    if (size() == 1) return;
    for (int64_t count : {0, 1, 1001, 300001}) {
      Array<int64_t> sent = Values<int64_t>(group.rank(), count), second(3, group.rank());
      Array<int64_t> received(count), received_second(3);
      std::vector<Work> works;
      auto send = [&] {
        works.push_back(group.Send(View(sent), right, Args()));
        works.push_back(group.Send(View(second), right, Args()));
      };
      auto receive = [&] {
        works.push_back(group.Recv(View(received), left, Args()));
        works.push_back(group.Recv(View(received_second), left, Args()));
      };
      if (group.rank() % 2 == 0) send();
      receive();
      if (group.rank() % 2 == 1) send();
      for (const Work& work : works) ASSERT_TRUE(work.Wait(Soon()).ok());
      EXPECT_TRUE(received == Values<int64_t>(left, count)) << count;
      EXPECT_EQ(received_second[2], left);
    }
  });
}

// All ranks of a ring launch at once, with messages longer than any channel, and of different
// lengths.
TEST_P(ProcessGroupTest, MessagesGoRoundARingTogether) {
  Run([this](ProcessGroup& group) {
    if (size() == 1) return;
    const int rank = group.rank(), right = (rank + 1) % size(), left = (rank + size() - 1) % size();
    for (const int64_t count : {0, 1, 1001, 300001}) {
      const auto length = [count](int of) { return count * (1 + of % 3); };
      Array<int64_t> sent = Values<int64_t>(rank, length(rank)), received(length(left));
      const Work work = group.SendRecv(View(sent), right, View(received), left, Args());
      ASSERT_TRUE(work.Wait(Soon()).ok());
      EXPECT_TRUE(received == Values<int64_t>(left, length(left))) << count;
    }
  });
}

TEST_P(ProcessGroupTest, AnExchangeMeetsASendAndARecv) {
  Run([this](ProcessGroup& group) {
    if (size() == 1 || group.rank() > 1) return;
    Array<int64_t> mine = Values<int64_t>(group.rank(), 1000), theirs(1000);
    std::vector<Work> works;
    if (group.rank() == 0) {
      works.push_back(group.SendRecv(View(mine), 1, View(theirs), 1, Args()));
    } else {
      works.push_back(group.Recv(View(theirs), 0, Args()));
      works.push_back(group.Send(View(mine), 0, Args()));
    }
    for (const Work& work : works) ASSERT_TRUE(work.Wait(Soon()).ok());
    EXPECT_TRUE(theirs == Values<int64_t>(1 - group.rank(), 1000));
  });
}

TEST_P(ProcessGroupTest, NobodyLeavesABarrierBeforeEverybodyEntered) {
  std::atomic<int> entered{0};
  Run([&](ProcessGroup& group) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      const SumOrder order = kSumOrders[round % 2];
      ASSERT_TRUE(group.Barrier(Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
      EXPECT_GE(entered.load(), round * size());
    }
  });
}

TEST_P(ProcessGroupTest, LaunchesWithoutWaitingRunInLaunchOrder) {
  Run([this](ProcessGroup& group) {
    // Each operation takes its predecessor's result: x -> size * x by sums, mixed with small, large
    // and gathered arrays.
    const int64_t large = kChunkElements * size() + 5;
    Array<double> values(large, 1), one(1, group.rank()), all(size());
    std::vector<Work> works;
    for (int i = 0; i < 6; ++i) {
      works.push_back(group.AllReduce(
          View(values), Args(ReduceOp::SUM, i % 2 ? SumOrder::ANY : SumOrder::TREE, i)));
      works.push_back(group.AllReduce(DenseView(values.data(), {3}), Args(ReduceOp::MAX)));
      works.push_back(group.AllGather(View(all), View(one), Args()));
    }
    ASSERT_TRUE(works.back().Wait(Soon()).ok());
    for (const Work& work : works) EXPECT_TRUE(work.done());
    const double expected = std::pow(size(), 6);
    EXPECT_EQ(std::count(values.begin(), values.end(), expected), large);
    for (int r = 0; r < size(); ++r) EXPECT_EQ(all[r], r);
  });
}

TEST_P(ProcessGroupTest, SplitGivesGroupsByColorOrderedByKey) {
  Run([this](ProcessGroup& group) {
    for (int round = 0; round < 2; ++round) {  // the same name twice
      auto half = group.Split(group.rank() % 2, -group.rank(), "half", Soon());
      ASSERT_TRUE(half.ok()) << half.status();
      const int members = (size() + 1 - group.rank() % 2) / 2;
      ASSERT_EQ((*half)->size(), members);
      EXPECT_EQ((*half)->rank(), members - 1 - group.rank() / 2);  // keys fall with the rank
      Array<int64_t> mine(1, group.rank()), all(members);
      ASSERT_TRUE((*half)->AllGather(View(all), View(mine), Args()).Wait(Soon()).ok());
      for (int r = 0; r < members; ++r) EXPECT_EQ(all[r], group.rank() % 2 + 2 * (members - 1 - r));
    }
  });
}

TEST_P(ProcessGroupTest, APartIsScatteredToAndGatheredFromItsPlaceInTheWhole) {
  Run([this](ProcessGroup& group) {
    for (const int64_t count : {int64_t{1}, int64_t{1001}, kChunkElements + 777}) {
      Array<float> whole = Values<float>(group.rank(), size() * count);
      const ArrayView part(whole.data() + group.rank() * count, DType::F32, {count});
      ASSERT_TRUE(group.ReduceScatter(part, View(whole), Args()).Wait(Soon()).ok());
      ASSERT_TRUE(group.AllGather(View(whole), part, Args()).Wait(Soon()).ok());
      int64_t wrong = 0;
      for (int64_t i = 0; i < size() * count; ++i)
        wrong += whole[i] != static_cast<float>(size() * (size() + 1) / 2 * (i % 7 + 1));
      EXPECT_EQ(wrong, 0) << "of " << count << " at rank " << group.rank();
    }
  });
}

TEST_P(ProcessGroupTest, SumsOfBf16AreThoseOfF32RoundedOnce) {
  // Numbers that need all eight bits: sums that are rounded at every addition differ.
  const auto value = [](int rank, int64_t i) {
    return 1 + 0.0078125f * static_cast<float>((i + 37 * rank) % 128);
  };
  Run([&](ProcessGroup& group) {
    for (const SumOrder order : kSumOrders) {
      if (IsNccl(kind()) && order == SumOrder::TREE) continue;
      for (const int64_t count : {int64_t{0}, int64_t{7}, 2 * kChunkElements + 31}) {
        Array<BFloat16> values(count);
        for (int64_t i = 0; i < count; ++i) values[i] = ToBFloat16(value(group.rank(), i));
        const ArrayView view(values.data(), DType::BF16, {count});
        ASSERT_TRUE(group.AllReduce(view, Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; ++i) {
          float sum = 0;  // exact
          for (int r = 0; r < size(); ++r) sum += value(r, i);
          const float found = ToFloat(values[i]);
          wrong += IsNccl(kind()) ? std::abs(found - sum) > 0.02f * sum
                                  : found != ToFloat(ToBFloat16(sum));
        }
        EXPECT_EQ(wrong, 0) << "of " << count << " at rank " << group.rank();
      }
    }
  });
}

TEST_P(ProcessGroupTest, AFailureOfAGroupFailsTheGroupsSplitFromIt) {
  std::atomic<int> num_split{0};
  Run([&](ProcessGroup& group) {
    auto half = group.Split(group.rank() % 2, group.rank(), "half", Soon());
    ++num_split;
    ASSERT_TRUE(half.ok()) << half.status();
    if (group.rank() % 2 == 1) return;
    while (num_split < size()) std::this_thread::yield();  // nobody is still at it
    if (group.rank() == 0) group.Abort(absl::UnavailableError("lost"));
    const absl::Status status = (*half)->Await((*half)->Barrier(Args()), Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(absl::StrContains(std::string(status.message()), "lost")) << status;
  });
}

TEST_P(ProcessGroupTest, TextsTravelFromOneRankToAll) {
  if (!AllocateGivesHostMemory()) GTEST_SKIP() << "texts travel through the host's memory";
  Run([](ProcessGroup& group) {
    const int last = group.size() - 1;
    const auto told = BroadcastText(group, absl::StrCat("rank ", group.rank()), last, {});
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(*told, absl::StrCat("rank ", last));
    const auto none = FirstText(group, "", {});
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_EQ(*none, "");
    const std::string mine = group.rank() >= last / 2 ? absl::StrCat("I am ", group.rank()) : "";
    const auto first = FirstText(group, mine, {});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(*first, absl::StrCat("I am ", last / 2));
  });
}

TEST_P(ProcessGroupTest, AllocatedBuffersAreReducedLikeOthers) {
  if (!AllocateGivesHostMemory()) GTEST_SKIP() << "tests/gpu has arrays of a device";
  Run([this](ProcessGroup& group) {
    const int64_t count = kChunkElements * size() + 4099;
    auto unused = group.Allocate(0);
    ASSERT_TRUE(unused.ok()) << unused.status();
    auto buffer = group.Allocate((count + 16) * sizeof(float));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    auto* values = static_cast<float*>((*buffer)->data()) + 16;
    for (SumOrder order : kSumOrders) {
      for (int64_t i = 0; i < count; ++i) values[i] = 0.1f * Value<float>(group.rank(), i);
      Array<float> plain(values, values + count);
      ASSERT_TRUE(group.AllReduce(View(plain), Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
      // The zero-copy sum comes last, so that a peer that still stores to the buffer shows.
      ASSERT_TRUE(group.AllReduce(DenseView(values, {count}), Args(ReduceOp::SUM, order))
                      .Wait(Soon())
                      .ok());
      EXPECT_EQ(std::memcmp(values, plain.data(), count * sizeof(float)), 0);
    }
    // If one rank has private memory, all ranks take the other path.
    Array<float> own(count, 1);
    std::fill(values, values + count, 1.0f);
    float* mixed = group.rank() == 0 ? own.data() : values;
    ASSERT_TRUE(group.AllReduce(DenseView(mixed, {count}), Args()).Wait(Soon()).ok());
    EXPECT_EQ(std::count(mixed, mixed + count, static_cast<float>(size())), count);
  });
}

TEST_P(ProcessGroupTest, NanReachesEveryRankThroughMaxAndMin) {
  if (IsNccl(kind())) GTEST_SKIP() << "NCCL does not promise it";
  Run([this](ProcessGroup& group) {
    for (int bad = 0; bad < size(); ++bad) {
      Array<float> values(3, static_cast<float>(group.rank()));
      if (group.rank() == bad) values[1] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_TRUE(group.AllReduce(View(values), Args(bad % 2 ? ReduceOp::MAX : ReduceOp::MIN))
                      .Wait(Soon())
                      .ok());
      EXPECT_TRUE(std::isnan(values[1]));
      EXPECT_FALSE(std::isnan(values[2]));
    }
  });
}

std::string ParamName(const testing::TestParamInfo<std::tuple<Kind, int>>& info) {
  return absl::StrCat(NameOf(std::get<0>(info.param)), std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Groups, ProcessGroupTest, testing::ValuesIn(KindsAndSizes()), ParamName);

class FailureTest : public testing::TestWithParam<Kind> {};

bool Says(const absl::Status& status, const std::string& text) {
  return absl::StrContains(std::string(status.message()), text);
}

TEST_P(FailureTest, ARankThatNeverArrivesIsNamedWithGroupOperationAndTag) {
  std::atomic<int> waiting{2};
  RunRanks(
      GetParam(), 3,
      [&](ProcessGroup& group) {
        Array<float> values(10, 1);
        if (group.rank() == 1) {
          while (waiting > 0) std::this_thread::yield();  // absent until its peers have given up
          EXPECT_FALSE(group.Barrier(Args()).Wait(Soon()).ok());
          return;
        }
        const absl::Status status =
            group.AllReduce(View(values), Args(ReduceOp::SUM, SumOrder::ANY, 77)).Wait(Soon());
        EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
        const std::string missing = NameOfRank(GetParam(), 1, 3) + " did not arrive";
        for (const std::string& text :
             {std::string("world"), std::string("AllReduce #0"), std::string("tag 77"), missing})
          EXPECT_TRUE(Says(status, text)) << status;
        // The first failure stays.
        EXPECT_EQ(group.Barrier(Args()).Wait(Soon()).message(), status.message());
        --waiting;
      },
      absl::Milliseconds(200));
}

TEST_P(FailureTest, AnOperationWithATimeoutOfItsOwnWaitsLongerThanTheGroup) {
  std::atomic<bool> late{false};
  RunRanks(
      GetParam(), 2,
      [&](ProcessGroup& group) {
        if (group.rank() == 1) {
          absl::SleepFor(absl::Milliseconds(300));
          late = true;
        }
        CollectiveArgs args = Args();
        args.timeout = absl::Seconds(30);
        EXPECT_TRUE(group.Barrier(args).Wait(Soon()).ok());
        EXPECT_TRUE(late);
      },
      absl::Milliseconds(100));
}

TEST_P(FailureTest, AMessageThatNobodySendsTimesOutNamingTheSender) {
  std::atomic<bool> waiting{true};
  RunRanks(
      GetParam(), 2,
      [&](ProcessGroup& group) {
        Array<float> values(10);
        if (group.rank() == 0) {
          absl::Status status = group.Recv(View(values), 1, Args()).Wait(Soon());
          EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
          EXPECT_TRUE(Says(status, NameOfRank(GetParam(), 1, 2) + " did not arrive")) << status;
          waiting = false;
        }
        while (waiting) std::this_thread::yield();  // silent, but alive
      },
      absl::Milliseconds(100));
}

TEST_P(FailureTest, AbortWakesEverybodyWithTheReason) {
  RunRanks(GetParam(), 4, [](ProcessGroup& group) {
    Array<float> values(200000, 1);
    ASSERT_TRUE(group.Barrier(Args()).Wait(Soon()).ok());
    const absl::Time start = absl::Now();
    if (group.rank() == 2) {
      absl::SleepFor(absl::Milliseconds(30));  // the peers have stopped polling and sleep
      group.Abort(absl::UnavailableError("the cable was cut"));
      const absl::Status status = group.Barrier(Args()).Wait(Soon());
      EXPECT_EQ(status, absl::UnavailableError("the cable was cut"));
      return;
    }
    std::vector<Work> works;
    for (int i = 0; i < 3; ++i) works.push_back(group.AllReduce(View(values), Args()));
    for (const Work& work : works) {
      const absl::Status status = work.Wait(Soon());
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_TRUE(Says(
          status, absl::StrCat("aborted by ", NameOfRank(GetParam(), 2, 4), ": the cable was cut")))
          << status;
    }
    // The wake-up itself ends the wait, not the timer that backs up a lost wake-up.
    EXPECT_LT(absl::Now() - start, absl::Milliseconds(800));
  });
}

TEST_P(FailureTest, ClosingAGroupWithWorkInFlightCancelsItAndFailsThePeers) {
  rpc::MemoryStore store;
  std::vector<std::unique_ptr<ProcessGroup>> groups =
      MakeGroups(GetParam(), 2, store, absl::Seconds(20));
  if (groups.empty()) GTEST_SKIP() << "not on this machine";
  Array<float> values(100);
  const Work first = groups[0]->AllReduce(View(values), Args()),
             second = groups[0]->Barrier(Args());
  groups[0].reset();
  EXPECT_TRUE(absl::IsCancelled(first.Wait(Soon())));
  EXPECT_TRUE(absl::IsCancelled(second.Wait(Soon())));
  const absl::Status peer = groups[1]->AllReduce(View(values), Args()).Wait(Soon());
  EXPECT_TRUE(absl::IsCancelled(peer)) << peer;
  EXPECT_TRUE(Says(peer, "closed group 'world'")) << peer;
}

// The timeout for operations that disagree: most groups notice at once.
absl::Duration PatienceOf(Kind kind) {
  return IsNccl(kind) ? absl::Milliseconds(300) : absl::Seconds(20);
}

struct Disagreement {
  const char* what;
  std::function<Work(ProcessGroup&, Array<float>&, bool odd)> launch;
  std::vector<std::string> texts;
};

TEST_P(FailureTest, RanksThatDisagreeGetBothDescriptions) {
  if (IsNccl(GetParam()) && !AllocateGivesHostMemory())
    GTEST_SKIP() << "the real NCCL may end such operations with anything";
  const std::vector<Disagreement> cases = {
      {"count",
       [](ProcessGroup& group, Array<float>& v, bool odd) {
         return group.AllReduce(DenseView(v.data(), {odd ? 11 : 12}), Args());
       },
       {"(11 x f32", "(12 x f32"}},
      {"path by count",
       [](ProcessGroup& group, Array<float>& v, bool odd) {
         return group.AllReduce(DenseView(v.data(), {odd ? 11 : 500000}), Args());
       },
       {"(11 x f32", "(500000 x f32"}},
      {"operation",
       [](ProcessGroup& group, Array<float>& v, bool odd) {
         const ArrayView view = DenseView(v.data(), {12});
         return odd ? group.Broadcast(view, 0, Args()) : group.AllReduce(view, Args());
       },
       {"Broadcast #0", "AllReduce #0"}},
      {"type",
       [](ProcessGroup& group, Array<float>& v, bool odd) {
         return group.AllReduce(ArrayView(v.data(), odd ? DType::I64 : DType::F32, {12}), Args());
       },
       {"12 x i64", "12 x f32"}},
      {"tag",
       [](ProcessGroup& group, Array<float>&, bool odd) {
         return group.Barrier(Args(ReduceOp::SUM, SumOrder::ANY, odd ? 5 : 6));
       },
       {"tag 5", "tag 6"}},
      {"message",
       [](ProcessGroup& group, Array<float>& v, bool odd) {
         const ArrayView view = DenseView(v.data(), {odd ? 7 : 8});
         return odd ? group.Recv(view, 0, Args()) : group.Send(view, 1, Args());
       },
       {"Recv #0 (7 x f32, from rank 0", "Send #0 (8 x f32, to rank 1"}},
  };
  for (const Disagreement& disagreement : cases) {
    if (IsNccl(GetParam()) && std::string(disagreement.what) == "tag")
      continue;  // which NCCL never sees
    const bool message = std::string(disagreement.what) == "message";
    RunRanks(
        GetParam(), message ? 2 : 3,
        [&](ProcessGroup& group) {
          Array<float> values(500000, 1);
          const absl::Status status =
              disagreement.launch(group, values, group.rank() == 1).Wait(Soon());
          if (message && IsNccl(GetParam())) {
            EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
            return;
          }
          if (message && group.rank() == 0) {
            EXPECT_TRUE(status.ok())
                << status;  // a short message is away before anybody looks at it
            return;
          }
          EXPECT_TRUE(absl::IsInternal(status)) << disagreement.what << ": " << status;
          for (const std::string& text : disagreement.texts)
            EXPECT_TRUE(Says(status, text)) << disagreement.what << ": " << status;
        },
        PatienceOf(GetParam()));
  }
}

TEST_P(FailureTest, AllToAllVWithUnequalCountsNamesThePair) {
  if (IsNccl(GetParam()) && !AllocateGivesHostMemory())
    GTEST_SKIP() << "the real NCCL may end such operations with anything";
  RunRanks(
      GetParam(), 2,
      [](ProcessGroup& group) {
        Array<float> input(5), output(group.rank() == 1 ? 5 : 6);
        const std::vector<int64_t> send_counts =
            group.rank() == 0 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{4, 1};
        const std::vector<int64_t> recv_counts =
            group.rank() == 0 ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{4, 1};
        const absl::Status status =
            group.AllToAllV(View(output), recv_counts, View(input), send_counts, Args())
                .Wait(Soon());
        if (group.rank() == 0) return;  // its part was right; what it launches next fails
        EXPECT_TRUE(absl::IsInternal(status)) << status;
        EXPECT_TRUE(Says(status, "rank 0 sends 3 elements to rank 1, which expects 4")) << status;
      },
      PatienceOf(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Groups, FailureTest, testing::ValuesIn(TestedKinds()),
                         [](const testing::TestParamInfo<Kind>& info) {
                           return NameOf(info.param);
                         });

}  // namespace
}  // namespace tandem::comm
