// One suite for every ProcessGroup: closed forms from inputs that differ per rank, every operation and element type,
// and what happens when a rank fails, disagrees or does not come.
#include "trainer/comm/process_group.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "kernels/base/random.h"
#include "tests/conformance/group_harness.h"
#include "trainer/comm/ring_order.h"

namespace tandem::comm {
namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 7};

// Small integers, exact in every type while no sum wraps.
template <class T>
T Value(int rank, int64_t i) {
  return static_cast<T>((rank + 1) * (i % 7 + 1));
}

template <class T>
std::vector<T> Values(int rank, int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = Value<T>(rank, i);
  return values;
}

template <class T>
ArrayView View(std::vector<T>& values) {
  return DenseView(values.data(), {static_cast<int64_t>(values.size())});
}

// Nothing, one, odd, and several blocks of the ring.
std::vector<int64_t> Counts(int size) { return {0, 1, 1001, 2 * kChunkElements * size + 777}; }

class ProcessGroupTest : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  Kind kind() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  void Run(const RankBody& body) { RunRanks(kind(), size(), body); }
};

template <class T>
void CheckAllReduce(ProcessGroup& group, int64_t count, CollectiveArgs args, T factor) {
  std::vector<T> values = Values<T>(group.rank(), count);
  ASSERT_TRUE(group.AllReduce(View(values), args).Wait(Soon()).ok());
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) wrong += values[i] != static_cast<T>(factor * static_cast<T>(i % 7 + 1));
  EXPECT_EQ(wrong, 0) << "of " << count << " elements at rank " << group.rank();
}

template <class T>
void CheckAllReduces(ProcessGroup& group, int64_t count) {
  const T n = static_cast<T>(group.size());
  const T sum = static_cast<T>(group.size() * (group.size() + 1) / 2);
  CheckAllReduce<T>(group, count, Args(ReduceOp::SUM, SumOrder::ANY), sum);
  CheckAllReduce<T>(group, count, Args(ReduceOp::SUM, SumOrder::TREE), sum);
  CheckAllReduce<T>(group, count, Args(ReduceOp::MAX), n);
  CheckAllReduce<T>(group, count, Args(ReduceOp::MIN), T{1});
}

TEST_P(ProcessGroupTest, AllReduceOfAnyCountIsTheClosedForm) {
  Run([this](ProcessGroup& group) {
    for (int64_t count : Counts(size())) CheckAllReduces<float>(group, count);
  });
}

TEST_P(ProcessGroupTest, AllReduceOfEveryTypeIsTheClosedForm) {
  Run([](ProcessGroup& group) {
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
    std::vector<float> one(10), all(10 * n);
    const std::vector<int64_t> counts(n, 10);
    const auto run = [&](CollectiveArgs args) {
      args.stream = &stream;
      ASSERT_TRUE(group.AllReduce(View(one), args).Wait(Soon()).ok());
      ASSERT_TRUE(group.AllGather(View(all), View(one), args).Wait(Soon()).ok());
      ASSERT_TRUE(group.ReduceScatter(View(one), View(all), args).Wait(Soon()).ok());
      ASSERT_TRUE(group.Broadcast(View(one), 0, args).Wait(Soon()).ok());
      std::vector<float> other(10 * n);
      ASSERT_TRUE(group.AllToAllV(View(other), counts, View(all), counts, args).Wait(Soon()).ok());
      if (n > 1) {
        const Work sent = group.Send(View(one), next, args);
        std::vector<float> received(10);
        ASSERT_TRUE(group.Recv(View(received), previous, args).Wait(Soon()).ok());
        ASSERT_TRUE(sent.Wait(Soon()).ok());
      }
      ASSERT_TRUE(group.Barrier(args).Wait(Soon()).ok());
    };
    run({});  // not traced
    stream.set_tracer(&tracer);
    const int64_t before = MonotonicNanoseconds();
    run({});
    const int64_t after = MonotonicNanoseconds();

    std::vector<std::pair<std::string, double>> expected = {{"all_reduce", 40},     {"all_gather", 40 * n},
                                                            {"reduce_scatter", 40 * n}, {"broadcast", 40},
                                                            {"all_to_all_v", 40 * n}, {"send", 40},
                                                            {"recv", 40},           {"barrier", 0}};
    if (n == 1) expected.erase(expected.begin() + 5, expected.begin() + 7);
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

TEST_P(ProcessGroupTest, AllGatherPutsRankRAtPlaceR) {
  Run([this](ProcessGroup& group) {
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{1001}, int64_t{200001}}) {
      std::vector<float> input = Values<float>(group.rank(), count), output(count * size(), -1), expected;
      ASSERT_TRUE(group.AllGather(View(output), View(input), Args()).Wait(Soon()).ok());
      for (int r = 0; r < size(); ++r) {
        const std::vector<float> part = Values<float>(r, count);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(output == expected) << count;
    }
  });
}

TEST_P(ProcessGroupTest, ReduceScatterGivesEachRankTheSumOfItsPart) {
  Run([this](ProcessGroup& group) {
    for (SumOrder order : {SumOrder::ANY, SumOrder::TREE}) {
      for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{1001}, int64_t{150001}}) {
        std::vector<double> input = Values<double>(group.rank(), count * size()), output(count, -1), expected(count);
        ASSERT_TRUE(group.ReduceScatter(View(output), View(input), Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
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
        std::vector<uint64_t> values = Values<uint64_t>(group.rank(), count);
        ASSERT_TRUE(group.Broadcast(View(values), root, Args()).Wait(Soon()).ok());
        EXPECT_TRUE(values == Values<uint64_t>(root, count)) << count;
      }
    }
  });
}

TEST_P(ProcessGroupTest, HalfPrecisionArraysAreCopiedBitForBit) {
  Run([this](ProcessGroup& group) {
    std::vector<uint16_t> input(1003, static_cast<uint16_t>(0x7f81 + group.rank())), output(1003 * size());
    const ArrayView from(input.data(), DType::BF16, {1003}), to(output.data(), DType::BF16, {size(), 1003});
    ASSERT_TRUE(group.AllGather(to, from, Args()).Wait(Soon()).ok());
    for (int r = 0; r < size(); ++r) EXPECT_EQ(output[r * 1003 + 1002], 0x7f81 + r);
  });
}

TEST_P(ProcessGroupTest, AllToAllVDeliversUnevenAndEmptyMessages) {
  Run([this](ProcessGroup& group) {
    // Rank s sends scale * (s + 2 t) elements to rank t: nothing from 0 to 0, several phases at the largest scale.
    for (int64_t scale : {1, 37, 20000}) {
      auto count = [&](int s, int t) { return scale * (s + 2 * t); };
      auto element = [](int s, int t, int64_t i) { return static_cast<float>(s * 1000 + t * 100 + i % 97); };
      std::vector<int64_t> send_counts, recv_counts;
      std::vector<float> input, expected;
      for (int r = 0; r < size(); ++r) {
        send_counts.push_back(count(group.rank(), r));
        recv_counts.push_back(count(r, group.rank()));
        for (int64_t i = 0; i < send_counts.back(); ++i) input.push_back(element(group.rank(), r, i));
        for (int64_t i = 0; i < recv_counts.back(); ++i) expected.push_back(element(r, group.rank(), i));
      }
      std::vector<float> output(expected.size(), -1);
      ASSERT_TRUE(group.AllToAllV(View(output), recv_counts, View(input), send_counts, Args()).Wait(Soon()).ok());
      EXPECT_TRUE(output == expected) << scale;
    }
  });
}

TEST_P(ProcessGroupTest, MessagesBetweenEachPairArriveInOrder) {
  Run([this](ProcessGroup& group) {
    // Towards the right in a ring; even ranks send first, since a message may be longer than the channel.
    const int right = (group.rank() + 1) % size(), left = (group.rank() + size() - 1) % size();
    if (size() == 1) return;
    for (int64_t count : {0, 1, 1001, 300001}) {
      std::vector<int64_t> sent = Values<int64_t>(group.rank(), count), second(3, group.rank());
      std::vector<int64_t> received(count), received_second(3);
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

TEST_P(ProcessGroupTest, NobodyLeavesABarrierBeforeEverybodyEntered) {
  std::atomic<int> entered{0};
  Run([&](ProcessGroup& group) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      ASSERT_TRUE(group.Barrier(Args()).Wait(Soon()).ok());
      EXPECT_GE(entered.load(), round * size());
    }
  });
}

TEST_P(ProcessGroupTest, LaunchesWithoutWaitingRunInLaunchOrder) {
  Run([this](ProcessGroup& group) {
    // Each works on what the one before left: x -> size * x by sums, mixed with small, large and gathered arrays.
    const int64_t large = kChunkElements * size() + 5;
    std::vector<double> values(large, 1), one(1, group.rank()), all(size());
    std::vector<Work> works;
    for (int i = 0; i < 6; ++i) {
      works.push_back(group.AllReduce(View(values), Args(ReduceOp::SUM, i % 2 ? SumOrder::ANY : SumOrder::TREE, i)));
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
      EXPECT_EQ((*half)->name(), "half");
      std::vector<int64_t> mine(1, group.rank()), all(members);
      ASSERT_TRUE((*half)->AllGather(View(all), View(mine), Args()).Wait(Soon()).ok());
      for (int r = 0; r < members; ++r) EXPECT_EQ(all[r], group.rank() % 2 + 2 * (members - 1 - r));
    }
  });
}

TEST_P(ProcessGroupTest, AllocatedBuffersAreReducedLikeOthers) {
  Run([this](ProcessGroup& group) {
    const int64_t count = kChunkElements * size() + 4099;
    auto unused = group.Allocate(0);
    ASSERT_TRUE(unused.ok()) << unused.status();
    auto buffer = group.Allocate((count + 16) * sizeof(float));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    auto* values = static_cast<float*>((*buffer)->data()) + 16;
    for (SumOrder order : {SumOrder::ANY, SumOrder::TREE}) {
      for (int64_t i = 0; i < count; ++i) values[i] = 0.1f * Value<float>(group.rank(), i);
      std::vector<float> plain(values, values + count);
      ASSERT_TRUE(group.AllReduce(DenseView(values, {count}), Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
      ASSERT_TRUE(group.AllReduce(View(plain), Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
      EXPECT_EQ(std::memcmp(values, plain.data(), count * sizeof(float)), 0);
    }
    // One rank with private memory: all take the other path.
    std::vector<float> own(count, 1);
    std::fill(values, values + count, 1.0f);
    float* mixed = group.rank() == 0 ? own.data() : values;
    ASSERT_TRUE(group.AllReduce(DenseView(mixed, {count}), Args()).Wait(Soon()).ok());
    EXPECT_EQ(std::count(mixed, mixed + count, static_cast<float>(size())), count);
  });
}

TEST_P(ProcessGroupTest, NanReachesEveryRankThroughMaxAndMin) {
  Run([this](ProcessGroup& group) {
    for (int bad = 0; bad < size(); ++bad) {
      std::vector<float> values(3, static_cast<float>(group.rank()));
      if (group.rank() == bad) values[1] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_TRUE(group.AllReduce(View(values), Args(bad % 2 ? ReduceOp::MAX : ReduceOp::MIN)).Wait(Soon()).ok());
      EXPECT_TRUE(std::isnan(values[1]));
      EXPECT_FALSE(std::isnan(values[2]));
    }
  });
}

std::string ParamName(const testing::TestParamInfo<std::tuple<Kind, int>>& info) {
  return absl::StrCat(NameOf(std::get<0>(info.param)), std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Groups, ProcessGroupTest,
                         testing::Combine(testing::Values(Kind::THREAD, Kind::SHARED_MEMORY), testing::ValuesIn(kSizes)),
                         ParamName);

// Random numbers of very different magnitude: another order of summation gives other bits.
std::vector<float> Wild(int rank, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = RandomBits({7, static_cast<uint64_t>(rank)}, 0, i);
    values[i] = std::ldexp(UnitFloat(bits) - 0.5f, static_cast<int>(bits % 24));
  }
  return values;
}

using Results = std::vector<std::vector<float>>;  // by rank

Results ReduceWild(Kind kind, int size, SumOrder order, bool scatter, int64_t count) {
  Results results(size);
  RunRanks(kind, size, [&](ProcessGroup& group) {
    std::vector<float>& mine = results[group.rank()];
    std::vector<float> input = Wild(group.rank(), count * (scatter ? size : 1));
    mine.resize(count);
    if (scatter) {
      ASSERT_TRUE(group.ReduceScatter(View(mine), View(input), Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
    } else {
      mine = input;
      ASSERT_TRUE(group.AllReduce(View(mine), Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
    }
  });
  return results;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class BitEqualityTest : public testing::TestWithParam<int> {};

TEST_P(BitEqualityTest, SharedMemoryGroupSumsLikeTheThreadGroupOnEveryRank) {
  const int size = GetParam();
  for (SumOrder order : {SumOrder::ANY, SumOrder::TREE}) {
    for (int64_t count : {int64_t{1001}, int64_t{40000}, kChunkElements * size + 13}) {
      const Results threads = ReduceWild(Kind::THREAD, size, order, false, count);
      const Results shared = ReduceWild(Kind::SHARED_MEMORY, size, order, false, count);
      for (int r = 0; r < size; ++r) {
        EXPECT_TRUE(SameBits(threads[r], threads[0])) << "rank " << r << " of " << size << ", " << count;
        EXPECT_TRUE(SameBits(shared[r], threads[0])) << "rank " << r << " of " << size << ", " << count;
      }
    }
    const Results threads = ReduceWild(Kind::THREAD, size, order, true, 70001);
    const Results shared = ReduceWild(Kind::SHARED_MEMORY, size, order, true, 70001);
    EXPECT_TRUE(threads == shared);
  }
}

TEST_P(BitEqualityTest, TreeOrderIsTheBalancedTreeOverRanks) {
  const int size = GetParam();
  std::function<float(int, int, int64_t)> tree = [&](int begin, int end, int64_t i) -> float {
    if (end - begin == 1) return Wild(begin, i + 1)[i];
    const int middle = begin + (end - begin + 1) / 2;
    return tree(begin, middle, i) + tree(middle, end, i);
  };
  const Results results = ReduceWild(Kind::SHARED_MEMORY, size, SumOrder::TREE, false, 300);
  for (int64_t i : {0, 1, 17, 255, 299}) EXPECT_EQ(results[0][i], tree(0, size, i)) << i;
}

TEST_P(BitEqualityTest, AnyOrderIsTheOrderOfTheRing) {
  const int size = GetParam();
  const int64_t count = 100 * size;
  const Results results = ReduceWild(Kind::SHARED_MEMORY, size, SumOrder::ANY, false, count);
  for (int chunk = 0; chunk < size; ++chunk) {
    const Range range = ChunkRange({0, count}, size, chunk);
    if (range.size() == 0) continue;
    float expected = Wild((chunk + 1) % size, count)[range.begin];
    for (int i = 2; i <= size; ++i) expected += Wild((chunk + i) % size, count)[range.begin];
    EXPECT_EQ(results[0][range.begin], expected) << "chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BitEqualityTest, testing::Values(2, 3, 4, 7));

class FailureTest : public testing::TestWithParam<Kind> {};

bool Says(const absl::Status& status, const std::string& text) { return absl::StrContains(std::string(status.message()), text); }

TEST_P(FailureTest, ARankThatNeverArrivesIsNamedWithGroupOperationAndTag) {
  std::atomic<int> waiting{2};
  RunRanks(GetParam(), 3, [&](ProcessGroup& group) {
    std::vector<float> values(10, 1);
    if (group.rank() == 1) {
      while (waiting > 0) std::this_thread::yield();  // absent until its peers have given up
      EXPECT_FALSE(group.Barrier(Args()).Wait(Soon()).ok());
      return;
    }
    const absl::Status status = group.AllReduce(View(values), Args(ReduceOp::SUM, SumOrder::ANY, 77)).Wait(Soon());
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    for (const char* text : {"world", "AllReduce #0", "tag 77", "rank 1 did not arrive"}) EXPECT_TRUE(Says(status, text)) << status;
    // The first failure stays.
    EXPECT_EQ(group.Barrier(Args()).Wait(Soon()).message(), status.message());
    --waiting;
  }, absl::Milliseconds(200));
}

TEST_P(FailureTest, AnOperationWithATimeoutOfItsOwnWaitsLongerThanTheGroup) {
  std::atomic<bool> late{false};
  RunRanks(GetParam(), 2, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      absl::SleepFor(absl::Milliseconds(300));
      late = true;
    }
    CollectiveArgs args = Args();
    args.timeout = absl::Seconds(30);
    EXPECT_TRUE(group.Barrier(args).Wait(Soon()).ok());
    EXPECT_TRUE(late);
  }, absl::Milliseconds(100));
}

TEST_P(FailureTest, AMessageThatNobodySendsTimesOutNamingTheSender) {
  RunRanks(GetParam(), 2, [](ProcessGroup& group) {
    std::vector<float> values(10);
    if (group.rank() == 0) {
      absl::Status status = group.Recv(View(values), 1, Args()).Wait(Soon());
      EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
      EXPECT_TRUE(Says(status, "rank 1 did not arrive")) << status;
    }
  }, absl::Milliseconds(100));
}

TEST_P(FailureTest, AbortWakesEverybodyWithTheReason) {
  RunRanks(GetParam(), 4, [](ProcessGroup& group) {
    std::vector<float> values(200000, 1);
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
      EXPECT_TRUE(Says(status, "aborted by rank 2: the cable was cut")) << status;
    }
    // Woken, not found out by the timer that backs up a lost wake-up.
    EXPECT_LT(absl::Now() - start, absl::Milliseconds(800));
  }, absl::Seconds(60));
}

TEST_P(FailureTest, ClosingAGroupWithWorkInFlightCancelsItAndFailsThePeers) {
  rpc::MemoryStore store;
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  if (GetParam() == Kind::THREAD) {
    groups = ThreadGroup::Create(2, "world");
  } else {
    const std::string token = NewToken();
    groups.resize(2);
    std::thread other([&] { groups[1] = CpuGroup::Create({&store, token, "world", 1, 2}, Soon()).value(); });
    groups[0] = CpuGroup::Create({&store, token, "world", 0, 2}, Soon()).value();
    other.join();
  }
  std::vector<float> values(100);
  const Work first = groups[0]->AllReduce(View(values), Args()), second = groups[0]->Barrier(Args());
  groups[0].reset();
  EXPECT_TRUE(absl::IsCancelled(first.Wait(Soon())));
  EXPECT_TRUE(absl::IsCancelled(second.Wait(Soon())));
  const absl::Status peer = groups[1]->AllReduce(View(values), Args()).Wait(Soon());
  EXPECT_TRUE(absl::IsCancelled(peer)) << peer;
  EXPECT_TRUE(Says(peer, "closed group 'world'")) << peer;
}

struct Disagreement {
  const char* what;
  std::function<Work(ProcessGroup&, std::vector<float>&, bool odd)> launch;
  std::vector<std::string> texts;
};

TEST_P(FailureTest, RanksThatDisagreeGetBothDescriptions) {
  const std::vector<Disagreement> cases = {
      {"count",
       [](ProcessGroup& group, std::vector<float>& v, bool odd) {
         return group.AllReduce(DenseView(v.data(), {odd ? 11 : 12}), Args());
       },
       {"(11 x f32", "(12 x f32"}},
      {"path by count",
       [](ProcessGroup& group, std::vector<float>& v, bool odd) {
         return group.AllReduce(DenseView(v.data(), {odd ? 11 : 500000}), Args());
       },
       {"(11 x f32", "(500000 x f32"}},
      {"operation",
       [](ProcessGroup& group, std::vector<float>& v, bool odd) {
         const ArrayView view = DenseView(v.data(), {12});
         return odd ? group.Broadcast(view, 0, Args()) : group.AllReduce(view, Args());
       },
       {"Broadcast #0", "AllReduce #0"}},
      {"type",
       [](ProcessGroup& group, std::vector<float>& v, bool odd) {
         return group.AllReduce(ArrayView(v.data(), odd ? DType::I64 : DType::F32, {12}), Args());
       },
       {"12 x i64", "12 x f32"}},
      {"tag",
       [](ProcessGroup& group, std::vector<float>&, bool odd) {
         return group.Barrier(Args(ReduceOp::SUM, SumOrder::ANY, odd ? 5 : 6));
       },
       {"tag 5", "tag 6"}},
      {"message",
       [](ProcessGroup& group, std::vector<float>& v, bool odd) {
         const ArrayView view = DenseView(v.data(), {odd ? 7 : 8});
         return odd ? group.Recv(view, 0, Args()) : group.Send(view, 1, Args());
       },
       {"Recv #0 (7 x f32, from rank 0", "Send #0 (8 x f32, to rank 1"}},
  };
  for (const Disagreement& disagreement : cases) {
    const bool message = std::string(disagreement.what) == "message";
    RunRanks(GetParam(), message ? 2 : 3, [&](ProcessGroup& group) {
      std::vector<float> values(500000, 1);
      const absl::Status status = disagreement.launch(group, values, group.rank() == 1).Wait(Soon());
      if (message && group.rank() == 0) {
        EXPECT_TRUE(status.ok()) << status;  // a short message is away before anybody looks at it
        return;
      }
      EXPECT_TRUE(absl::IsInternal(status)) << disagreement.what << ": " << status;
      for (const std::string& text : disagreement.texts) EXPECT_TRUE(Says(status, text)) << disagreement.what << ": " << status;
    }, absl::Seconds(60));
  }
}

TEST_P(FailureTest, AllToAllVWithUnequalCountsNamesThePair) {
  RunRanks(GetParam(), 2, [](ProcessGroup& group) {
    std::vector<float> input(5), output(group.rank() == 1 ? 5 : 6);
    const std::vector<int64_t> send_counts = group.rank() == 0 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{4, 1};
    const std::vector<int64_t> recv_counts = group.rank() == 0 ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{4, 1};
    const absl::Status status =
        group.AllToAllV(View(output), recv_counts, View(input), send_counts, Args()).Wait(Soon());
    if (group.rank() == 0) return;  // its part was right; what it launches next fails
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_TRUE(Says(status, "rank 0 sends 3 elements to rank 1, which expects 4")) << status;
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, FailureTest, testing::Values(Kind::THREAD, Kind::SHARED_MEMORY),
                         [](const testing::TestParamInfo<Kind>& info) { return NameOf(info.param); });

TEST(CpuGroupTest, NothingIsInDevShmWhileTheGroupLives) {
  rpc::MemoryStore store;
  const std::string token = NewToken();
  auto live = [&](int rank) {
    auto group = CpuGroup::Create({&store, token, "world", rank, 2}, Soon());
    ASSERT_TRUE(group.ok()) << group.status();
    auto buffer = (*group)->Allocate(1000);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_TRUE((*group)->Barrier(Args()).Wait(Soon()).ok());
    EXPECT_TRUE(SharedMemoryNames(token).empty());
    ASSERT_TRUE((*group)->Barrier(Args()).Wait(Soon()).ok());
  };
  std::thread other([&] { live(1); });
  live(0);
  other.join();
}

TEST(CpuGroupTest, ARankThatDoesNotJoinIsNamedAndNothingIsLeftBehind) {
  rpc::MemoryStore store;
  const std::string token = NewToken();
  const auto first = CpuGroup::Create({&store, token, "world", 0, 2}, absl::Now() + absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.status()));
  EXPECT_TRUE(Says(first.status(), "rank 1 of 2 did not join group 'world'")) << first.status();
  const auto second = CpuGroup::Create({&store, token, "other", 1, 2}, absl::Now() + absl::Milliseconds(50));
  EXPECT_TRUE(Says(second.status(), "rank 0 of 2 did not open group 'other'")) << second.status();
  EXPECT_TRUE(SharedMemoryNames(token).empty());
}

}  // namespace
}  // namespace tandem::comm
