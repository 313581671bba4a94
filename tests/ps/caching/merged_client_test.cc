// Merged pushes of a host's trainers: no bit changes, servers hear of each row once, and errors
// name the right trainers.
// Also covers a step whose merger is gone. exactly_once_test.cc has the bad network,
// consistency_controller_test.cc the rules.
#include "ps/caching/merged_client.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "ps/local/local_client.h"
#include "tests/ps/caching/merging.h"
#include "tests/ps/cluster.h"
#include "tests/ps/forwarding_client.h"
#include "tests/ps/training.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;

std::vector<Trace> TrainTogether(MergingHost& host, const std::vector<ClientStack>& clients) {
  std::vector<Trace> traces(host.size());
  host.Run([&](uint32_t trainer) {
    ASSERT_TRUE(clients[trainer].tables->CreateTables(TrainedSpecs(), absl::Seconds(20)).ok());
    Train(clients[trainer], trainer, {1, 6}, &traces[trainer]);
  });
  return traces;
}

void ExpectSameTraces(const std::vector<Trace>& a, const std::vector<Trace>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t trainer = 0; trainer < a.size(); ++trainer) {
    ASSERT_EQ(a[trainer].rows.size(), b[trainer].rows.size());
    EXPECT_EQ(0, std::memcmp(a[trainer].rows.data(), b[trainer].rows.data(),
                             a[trainer].rows.size() * sizeof(float)));
    EXPECT_EQ(a[trainer].norms, b[trainer].norms);
    EXPECT_EQ(a[trainer].hash.hash, b[trainer].hash.hash);
    EXPECT_EQ(a[trainer].hash.num_rows, b[trainer].hash.num_rows);
  }
}

constexpr uint32_t kDim = 3;

TableSpec SumSpec(TableSpec::NonFinite non_finite = TableSpec::REJECT) {
  TableSpec spec = MakeTableSpec(1, kDim);
  spec.set_init_stddev(0);
  spec.set_non_finite(non_finite);
  return spec;
}

CommitArgs Rate1(uint64_t step) { return {step, {{1, 1.0}}, 1, false}; }

// Each trainer pushes two slices a step. The slices of one trainer add up before those of another.
TEST(MergedClientTest, EveryBitIsThatWithoutMerging) {
  for (const uint32_t trainers : {1u, 2u, 3u}) {
    MergingHost host(trainers);
    TableHost plain_tables(2);
    std::vector<ClientStack> plain;
    for (uint32_t trainer = 0; trainer < trainers; ++trainer) {
      plain.push_back(std::make_unique<LocalClient>(plain_tables, trainer, trainers));
    }
    const auto reference = TrainTogether(host, plain);
    ASSERT_GT(reference[0].hash.num_rows, 200u);
    for (const size_t push_bytes : {size_t{1}, size_t{4000}, size_t{1} << 20}) {
      SCOPED_TRACE(testing::Message()
                   << trainers << " trainers, pushes of " << push_bytes << " bytes");
      TableHost tables(2);
      const auto local = [&](uint32_t trainer) {
        return std::make_unique<LocalClient>(tables, trainer, trainers);
      };
      ExpectSameTraces(TrainTogether(host, host.MakeClients(local, {push_bytes})), reference);
      for (const int servers : {1, 3}) {
        PsCluster cluster(servers, 2);
        const auto remote = [&](uint32_t trainer) {
          return cluster.MakeClient(trainer, trainers, {absl::Seconds(20), 700});
        };
        ExpectSameTraces(TrainTogether(host, host.MakeClients(remote, {push_bytes})), reference);
      }
    }
  }
}

// In the order of sums, a trainer's slices are not adjacent, nor are its pushes in one slice.
TEST(MergedClientTest, SlicesAddUpBeforeTrainersAndTrainersBeforePushes) {
  constexpr uint32_t kPushers = 3;
  const std::vector<uint64_t> ids = {11, 12, 13, 14, 15, 16};
  const auto train = [&](bool merged) {
    MergingHost host(kPushers);
    TableHost tables(2);
    const auto local = [&](uint32_t trainer) {
      return std::make_unique<LocalClient>(tables, trainer, kPushers);
    };
    std::vector<ClientStack> clients;
    if (merged) clients = host.MakeClients(local);
    for (uint32_t trainer = 0; !merged && trainer < kPushers; ++trainer)
      clients.push_back(local(trainer));
    host.Run([&](uint32_t trainer) {
      ASSERT_TRUE(clients[trainer].tables->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
      for (const uint32_t slice : {4 - trainer, trainer, 2u, 2u}) {
        const auto gradients = MakeValues(trainer * 7 + slice, ids.size() * kDim);
        ASSERT_TRUE(clients[trainer]
                        .rows->Push(1, slice, {{1, ids, gradients.data()}})
                        .Wait(Deadline())
                        .ok());
      }
      const auto committed = clients[trainer].rows->Commit(Rate1(1)).Wait(Deadline());
      ASSERT_TRUE(committed.ok()) << committed.status();
    });
    std::vector<float> rows(ids.size() * kDim);
    EXPECT_TRUE(clients[0].rows->Pull(0, false, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
    return rows;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(MergedClientTest, RoundedOnTheWireTheSameHoweverPushesAreCut) {
  const auto train = [](int servers, size_t push_bytes) {
    MergingHost host(2);
    PsCluster cluster(servers, 1);
    const auto remote = [&](uint32_t trainer) {
      return cluster.MakeClient(trainer, 2, {.timeout = absl::Seconds(20), .wire = WIRE_BF16});
    };
    return TrainTogether(host, host.MakeClients(remote, {push_bytes}));
  };
  const auto one = train(1, size_t{1} << 20);
  ExpectSameTraces(train(3, 4000), one);
}

// The ids and pushes that reach the tables.
struct Seen {
  absl::Mutex mutex;
  std::multiset<uint64_t> ids;
  std::map<uint32_t, std::set<uint32_t>> covered;  // by trainer: whose pushes its pushes have
};

class Watched : public ForwardingClient, public MergedPushes {
 public:
  Watched(const Clients& inner, MergedPushes& pushes, Seen* seen)
      : ForwardingClient(inner), pushes_(pushes), seen_(seen) {}
  Future<Done> Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override {
    ADD_FAILURE() << "a push by itself";
    return ForwardingClient::Push(step, slice, std::move(segments));
  }
  PushName NamePush() override { return pushes_.NamePush(); }
  Future<Done> PushMerged(uint64_t step, const std::vector<PushName>& names,
                          std::vector<PushSegment> segments) override {
    absl::MutexLock lock(&seen_->mutex);
    for (const PushSegment& segment : segments)
      seen_->ids.insert(segment.ids.begin(), segment.ids.end());
    for (const PushName& name : names) seen_->covered[names[0].trainer].insert(name.trainer);
    return pushes_.PushMerged(step, names, std::move(segments));
  }

 private:
  MergedPushes& pushes_;
  Seen* const seen_;
};

// Pushes and commits step 1 of a table. Its rows are then minus the sum of their gradients.
absl::Status PushAndCommit(RowClient& client, const std::vector<uint64_t>& ids,
                           const std::vector<float>& gradients, uint32_t slice = 0,
                           absl::Duration patience = absl::Seconds(20)) {
  const auto pushed = client.Push(1, slice, {{1, ids, gradients.data()}});
  const absl::Status committed = client.Commit(Rate1(1)).Wait(absl::Now() + patience).status();
  const absl::Status push = pushed.Wait(absl::Now() + patience).status();
  return push.ok() ? committed : push;
}

TEST(MergedClientTest, AnIdReachesServersOnceAndItsPushNamesWhoseGradientsItHas) {
  MergingHost host(3);
  TableHost tables(1);
  Seen seen;
  const auto clients = host.MakeClients([&](uint32_t trainer) {
    auto local = std::make_unique<LocalClient>(tables, trainer, 3);
    MergedPushes& pushes = *local;
    ClientStack client = std::move(local);
    Watched& watched = client.Wrap<Watched>(pushes, &seen);
    return Mergeable(std::move(client), watched);
  });
  std::vector<uint64_t> shared(100);
  for (size_t i = 0; i < shared.size(); ++i) shared[i] = i + 1;
  host.Run([&](uint32_t trainer) {
    ASSERT_TRUE(clients[trainer].tables->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
    std::vector<uint64_t> ids = shared;
    if (trainer == 2) ids.clear();
    const absl::Status status =
        PushAndCommit(*clients[trainer].rows, ids, std::vector<float>(ids.size() * kDim, 1));
    EXPECT_TRUE(status.ok()) << status;
  });
  EXPECT_EQ(seen.ids, std::multiset<uint64_t>(shared.begin(), shared.end()));
  EXPECT_EQ(seen.covered,
            (std::map<uint32_t, std::set<uint32_t>>{{0, {0, 1}}, {1, {0, 1}}, {2, {0, 1, 2}}}));
  std::vector<float> rows(shared.size() * kDim);
  ASSERT_TRUE(clients[0].rows->Pull(0, false, {{1, shared, rows.data()}}).Wait(Deadline()).ok());
  EXPECT_EQ(rows, std::vector<float>(rows.size(), -2));
  const auto merged_by_0 = std::count_if(shared.begin(), shared.end(), [](uint64_t id) {
    return rpc::VirtualShard(1, id) * 3 / 1024 == 0;
  });
  const std::string line =
      absl::StrCat("merged pushes: gradients of ", 2 * merged_by_0,
                   " rows of 3 trainers were added up here, and ", merged_by_0, " rows pushed");
  EXPECT_EQ(clients[0].tables->Report(), std::vector<std::string>{line});
}

TEST(MergedClientTest, ServersKnowACoveredPushWhenItComesByItself) {
  for (const bool alone_first : {false, true}) {
    PsCluster cluster(1, 2);
    const auto sender = cluster.MakeClient(0, 2, {.timeout = absl::Seconds(20)});
    const auto other = cluster.MakeClient(1, 2, {.timeout = absl::Seconds(20)});
    for (const auto* client : {&sender, &other})
      ASSERT_TRUE((*client)->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
    const std::vector<uint64_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<float> both(ids.size() * kDim, 3), alone(ids.size() * kDim, 1);
    // The first push of `other` has sequence 1.
    const auto push_merged = [&] {
      return sender->PushMerged(1, {sender->NamePush(), {1, 1, 1}}, {{1, ids, both.data()}})
          .Wait(Deadline())
          .status();
    };
    const auto push_alone = [&] {
      return other->Push(1, 0, {{1, ids, alone.data()}}).Wait(Deadline()).status();
    };
    absl::Status first = alone_first ? push_alone() : push_merged(),
                 second = alone_first ? push_merged() : push_alone();
    EXPECT_TRUE(first.ok()) << first;
    EXPECT_EQ(second.code(),
              alone_first ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk)
        << second;
    EXPECT_EQ(second.message().find("cannot be taken apart") != absl::string_view::npos,
              alone_first)
        << second;
    const StatisticsReply statistics = *other->Statistics().Wait(Deadline());
    EXPECT_EQ(statistics.pushes(), 1u);
    EXPECT_EQ(statistics.repeated_pushes(), alone_first ? 0u : 1u);
    if (alone_first) continue;  // the sender's commit fails with its push
    const auto committed = sender->Commit(Rate1(1));
    EXPECT_TRUE(other->Commit(Rate1(1)).Wait(Deadline()).ok());
    EXPECT_TRUE(committed.Wait(Deadline()).ok());
    std::vector<float> rows(ids.size() * kDim);
    ASSERT_TRUE(other->Pull(0, false, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
    EXPECT_EQ(rows, std::vector<float>(rows.size(), -3));
  }
}

// One step of two trainers with rows 1 to 4. Trainer 1's gradient of row 3 has a NaN and an
// infinity.
struct Guarded {
  std::vector<absl::Status> results;
  std::vector<float> rows;
  StatisticsReply statistics;
};

Guarded PushNonFinite(TableSpec::NonFinite policy, bool merged) {
  MergingHost host(2);
  TableHost tables(2);
  const auto local = [&](uint32_t trainer) {
    return std::make_unique<LocalClient>(tables, trainer, 2);
  };
  std::vector<ClientStack> clients;
  if (merged) clients = host.MakeClients(local);
  for (uint32_t trainer = 0; !merged && trainer < 2; ++trainer) clients.push_back(local(trainer));
  const std::vector<uint64_t> ids = {1, 2, 3, 4};
  Guarded guarded{std::vector<absl::Status>(2), std::vector<float>(ids.size() * kDim), {}};
  host.Run([&](uint32_t trainer) {
    ASSERT_TRUE(clients[trainer].tables->CreateTables({SumSpec(policy)}, absl::Seconds(20)).ok());
    std::vector<float> gradients = MakeValues(trainer, ids.size() * kDim);
    if (trainer == 1) {
      gradients[2 * kDim] = std::numeric_limits<float>::quiet_NaN();
      gradients[2 * kDim + 2] = -std::numeric_limits<float>::infinity();
    }
    guarded.results[trainer] = PushAndCommit(*clients[trainer].rows, ids, gradients, trainer,
                                             absl::Seconds(merged ? 20 : 1));
  });
  EXPECT_TRUE(
      clients[0].rows->Pull(0, false, {{1, ids, guarded.rows.data()}}).Wait(Deadline()).ok());
  guarded.statistics = *clients[0].tables->Statistics().Wait(Deadline());
  return guarded;
}

TEST(MergedClientTest, AGradientThatIsNotFiniteIsDroppedOrMendedAndCountedAsWithoutMerging) {
  for (const auto policy : {TableSpec::SKIP, TableSpec::CLIP}) {
    const Guarded plain = PushNonFinite(policy, false), merged = PushNonFinite(policy, true);
    for (const Guarded* each : {&plain, &merged}) {
      for (const absl::Status& result : each->results) EXPECT_TRUE(result.ok()) << result;
      const TableStatistics& table = each->statistics.tables(0);
      EXPECT_EQ(table.skipped(), policy == TableSpec::SKIP ? 1u : 0u);
      EXPECT_EQ(table.mended(), policy == TableSpec::CLIP ? 1u : 0u);
      EXPECT_EQ(table.first_offender().id(), 3u);
      EXPECT_EQ(table.first_offender().trainer(), 1u);
    }
    EXPECT_EQ(merged.rows, plain.rows) << TableSpec::NonFinite_Name(policy);
  }
}

TEST(MergedClientTest, ARejectedGradientFailsTheStepForAllNamingWhoseItIs) {
  const Guarded merged = PushNonFinite(TableSpec::REJECT, true);
  for (const absl::Status& result : merged.results) {
    EXPECT_TRUE(absl::IsOutOfRange(result)) << result;
    EXPECT_NE(result.message().find(
                  "the gradient of id 3 is not finite (NaN or infinity), from trainer 1 in step 1"),
              absl::string_view::npos)
        << result;
  }
  EXPECT_EQ(merged.statistics.tables(0).rejected(), 1u);
  EXPECT_EQ(merged.rows, std::vector<float>(merged.rows.size(), 0)) << "nothing was applied";
}

TEST(MergedClientTest, BadPushesAreRefusedAndHeldNoFurther) {
  MergingHost host(1);
  TableHost tables(1);
  const auto clients = host.MakeClients(
      [&](uint32_t trainer) { return std::make_unique<LocalClient>(tables, trainer, 1); });
  const Clients& client = clients[0];
  ASSERT_TRUE(client.tables->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
  const std::vector<float> gradients(2 * kDim, 1);
  const auto push = [&](uint64_t step, uint32_t table, const std::vector<uint64_t>& ids) {
    return client.rows->Push(step, 0, {{table, ids, gradients.data()}}).Wait(Deadline()).status();
  };
  EXPECT_EQ(push(1, 1, {4, 5}), absl::OkStatus());
  EXPECT_EQ(push(2, 1, {4}), absl::InvalidArgumentError(
                                 "push for step 2, but pushes of step 1 wait for their commit"));
  const absl::Status committed = client.rows->Commit(Rate1(1)).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(committed)) << "a push of the step was refused";

  const auto others = host.MakeClients(
      [&](uint32_t trainer) { return std::make_unique<LocalClient>(tables, trainer, 1); });
  ASSERT_TRUE(others[0].tables->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
  const auto push_other = [&](uint64_t step, uint32_t table, const std::vector<uint64_t>& ids) {
    return others[0]
        .rows->Push(step, 0, {{table, ids, gradients.data()}})
        .Wait(Deadline())
        .status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(push_other(1, 7, {4}))) << "no such table";
  EXPECT_TRUE(absl::IsInvalidArgument(push_other(1, 1, {0}))) << "padding";
  EXPECT_TRUE(absl::IsInvalidArgument(push_other(1, 1, {4, 4}))) << "twice";
  std::vector<float> rows(2 * kDim);
  ASSERT_TRUE(others[0]
                  .rows->Pull(0, false, {{1, std::vector<uint64_t>{4, 5}, rows.data()}})
                  .Wait(Deadline())
                  .ok());
  EXPECT_EQ(rows, std::vector<float>(2 * kDim, 0));
}

TEST(MergedClientTest, APushAfterTheNormIsRefused) {
  MergingHost host(1);
  TableHost tables(1);
  const auto clients = host.MakeClients(
      [&](uint32_t trainer) { return std::make_unique<LocalClient>(tables, trainer, 1); });
  ASSERT_TRUE(clients[0].tables->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
  const std::vector<uint64_t> ids = {9};
  const std::vector<float> gradients(kDim, 2);
  ASSERT_TRUE(clients[0].rows->Push(1, 0, {{1, ids, gradients.data()}}).Wait(Deadline()).ok());
  EXPECT_EQ(*clients[0].rows->GradientNorm(1).Wait(Deadline()), absl::uint128{12} << 64);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      clients[0].rows->Push(1, 0, {{1, ids, gradients.data()}}).Wait(Deadline()).status()));
}

// A client that is gone: pushes handed to it are never pushed.
class Dying : public ForwardingClient, public MergedPushes {
 public:
  Dying(const Clients& inner, MergedPushes& pushes) : ForwardingClient(inner), pushes_(pushes) {}
  PushName NamePush() override { return pushes_.NamePush(); }
  Future<Done> PushMerged(uint64_t, const std::vector<PushName>&,
                          std::vector<PushSegment>) override {
    return Gone();
  }
  Future<Done> Commit(const CommitArgs&) override { return Gone(); }

 private:
  static Future<Done> Gone() {
    return Future<Done>::Ready(absl::UnavailableError("this trainer is gone"));
  }

  MergedPushes& pushes_;
};

TEST(MergedClientTest, WhatAMergerTookAlongIsAppliedNeverAndByNobody) {
  MergingHost host(2);
  PsCluster cluster(1, 1);
  const auto clients = host.MakeClients([&](uint32_t trainer) -> Mergeable {
    auto remote = cluster.MakeClient(trainer, 2, {.timeout = absl::Seconds(1)});
    if (trainer == 0) return remote;
    MergedPushes& pushes = *remote;
    ClientStack client = std::move(remote);
    Dying& dying = client.Wrap<Dying>(pushes);
    return Mergeable(std::move(client), dying);
  });
  std::vector<uint64_t> ids(50);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i + 1;
  std::vector<absl::Status> results(2);
  host.Run([&](uint32_t trainer) {
    ASSERT_TRUE(clients[trainer].tables->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
    results[trainer] =
        PushAndCommit(*clients[trainer].rows, ids, std::vector<float>(ids.size() * kDim, 1));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(results[0])) << results[0];
  EXPECT_NE(results[0].message().find("commit of step 1"), absl::string_view::npos) << results[0];
  EXPECT_TRUE(absl::IsUnavailable(results[1])) << results[1];
  EXPECT_EQ(clients[0].tables->Hash().Wait(Deadline())->num_rows, 0u);
}

TEST(MergedClientTest, ATrainerThatDoesNotComeIsNamedByTheDeadline) {
  MergingHost host(2, absl::Milliseconds(200));
  TableHost tables(1);
  const auto clients = host.MakeClients(
      [&](uint32_t trainer) { return std::make_unique<LocalClient>(tables, trainer, 2); });
  ASSERT_TRUE(clients[0].tables->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
  const absl::Status late = PushAndCommit(*clients[0].rows, {1}, {1, 2, 3});
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_NE(late.message().find("pushes of step 1 were not merged: group 'merge' rank 0"),
            absl::string_view::npos)
      << late;
  EXPECT_NE(late.message().find("rank 1 did not arrive within 200ms"), absl::string_view::npos)
      << late;
  EXPECT_EQ(clients[0].rows->Commit(Rate1(1)).Wait(Deadline()).status(), late) << "for good";
}

TEST(MergedClientTest, AnAbortWakesATrainerThatWaitsForAnother) {
  MergingHost host(2);
  TableHost tables(1);
  const auto clients = host.MakeClients(
      [&](uint32_t trainer) { return std::make_unique<LocalClient>(tables, trainer, 2); });
  host.Run([&](uint32_t trainer) {
    if (trainer == 1) return clients[1].rows->Abort(absl::UnavailableError("its machine burns"));
    const absl::Status woken = clients[0].rows->Commit(Rate1(1)).Wait(Deadline()).status();
    EXPECT_NE(woken.message().find("its machine burns"), absl::string_view::npos) << woken;
  });
}

TEST(MergedClientTest, TrainersThatEndDifferentStepsAreTold) {
  MergingHost host(2);
  TableHost tables(1);
  const auto clients = host.MakeClients(
      [&](uint32_t trainer) { return std::make_unique<LocalClient>(tables, trainer, 2); });
  std::vector<absl::Status> results(2);
  host.Run([&](uint32_t trainer) {
    ASSERT_TRUE(clients[trainer].tables->CreateTables({SumSpec()}, absl::Seconds(20)).ok());
    results[trainer] = clients[trainer].rows->Commit(Rate1(1 + trainer)).Wait(Deadline()).status();
  });
  for (const absl::Status& result : results) {
    EXPECT_TRUE(absl::IsFailedPrecondition(result)) << result;
    EXPECT_NE(result.message().find("trainers commit the same steps"), absl::string_view::npos)
        << result;
  }
}

}  // namespace
}  // namespace tandem::ps
