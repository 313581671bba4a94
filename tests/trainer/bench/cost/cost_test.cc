#include "trainer/bench/cost/cost.h"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "trainer/bench/cost/fit.h"
#include "trainer/bench/cost/profile.h"

namespace tandem::bench {
namespace {

// Round numbers, so that the expected times can be added by hand.
CostProfile RoundCosts() {
  CostProfile costs;
  costs.set_machine("a machine");
  costs.set_date("2026-11-29");
  costs.set_cores(2);
  costs.set_update_ns_per_byte(1);
  costs.set_apply_ns_per_byte(2);
  costs.set_trainer_ns_per_row(100);
  costs.set_server_ns_per_row(200);
  for (TransportCosts* const transport :
       {costs.mutable_shm(), costs.mutable_tcp(), costs.mutable_network()}) {
    transport->set_ring_message_us(10);
    transport->set_ring_ns_per_byte(3);
    transport->set_call_us(50);
    transport->set_call_trainer_us(20);
    transport->set_call_server_us(15);
    transport->set_trainer_ns_per_byte(4);
    transport->set_server_ns_per_byte(5);
  }
  return costs;
}

// 1,000 rows of 1,000 bytes, of which each of 4 trainers uses 100 and all together 300.
Synchronisation TableOf(int trainers, int servers) {
  return {.bytes = 1e6,
          .bytes_per_trainer = 1e5,
          .distinct_bytes = 3e5,
          .row_bytes = 1000,
          .trainers = trainers,
          .servers = servers};
}

TEST(CostTest, ARingMovesAllBytesWhateverItsRows) {
  const Cost cost = RingCost(TableOf(4, 1), {.cores = 0}, RoundCosts());
  const double moved = 2 * 3 / 4.0 * 1e6;
  EXPECT_DOUBLE_EQ(cost.trainer_bytes, 2 * moved);
  EXPECT_DOUBLE_EQ(cost.latency, 6 * 10e-6);
  EXPECT_DOUBLE_EQ(cost.moving, moved * 3e-9);
  EXPECT_DOUBLE_EQ(cost.updating, 1e-3);
  EXPECT_DOUBLE_EQ(cost.seconds, 60e-6 + 4.5e-3 + 1e-3);
  EXPECT_EQ(cost.server_bytes, 0);
  EXPECT_EQ(cost.limit, Cost::WORK);
}

TEST(CostTest, OneTrainerOfARingOnlyUpdates) {
  const Cost cost = RingCost(TableOf(1, 1), {.bits_per_second = 1e6}, RoundCosts());
  EXPECT_DOUBLE_EQ(cost.seconds, 1e-3);
  EXPECT_EQ(cost.trainer_bytes, 0);
}

TEST(CostTest, ServersMoveTheRowsOfAStepAndUpdateEachOnce) {
  const Cost cost = ServerCost(TableOf(4, 2), {.cores = 0}, RoundCosts());
  EXPECT_DOUBLE_EQ(cost.trainer_bytes, 2e5);
  EXPECT_DOUBLE_EQ(cost.server_bytes, 2 * 4 * 1e5 / 2);
  const double trainer = 2e5 * 4e-9 + 200 * 100e-9,
               server = 4e5 * 5e-9 + 400 * 200e-9;  // half of the pushes and pulls
  EXPECT_NEAR(cost.moving, trainer + server, 1e-12);
  EXPECT_NEAR(cost.updating, 3e5 / 2 * 2e-9, 1e-12);
  EXPECT_NEAR(cost.seconds, 50e-6 + cost.moving + cost.updating, 1e-12);
}

TEST(CostTest, TheBusiestMembersLinkCountsBothWays) {
  const Machines where{.transport = Machines::NETWORK, .bits_per_second = 8e6};  // 1 MB a second
  EXPECT_NEAR(ServerCost(TableOf(4, 1), where, RoundCosts()).link, 2 * 4e5 * kHeaders / 1e6, 1e-9);
  EXPECT_NEAR(ServerCost(TableOf(4, 2), where, RoundCosts()).link, 2 * 2e5 * kHeaders / 1e6, 1e-9);
  // With more servers than trainers, a trainer's link is the busiest.
  EXPECT_NEAR(ServerCost(TableOf(1, 4), where, RoundCosts()).link, 2 * 1e5 * kHeaders / 1e6, 1e-9);
  EXPECT_NEAR(RingCost(TableOf(4, 1), where, RoundCosts()).link, 1.5e6 * kHeaders / 1e6, 1e-9);
  EXPECT_EQ(RingCost(TableOf(4, 1), where, RoundCosts()).limit, Cost::LINK);
}

TEST(CostTest, NoSynchronisationIsFasterThanItsWorkOverTheCores) {
  const Cost apart = RingCost(TableOf(4, 1), {.cores = 0}, RoundCosts());
  EXPECT_DOUBLE_EQ(apart.work_of_trainers, 4 * (apart.moving + apart.updating));
  const Cost together = RingCost(TableOf(4, 1), {.cores = 2}, RoundCosts());
  EXPECT_DOUBLE_EQ(together.seconds, apart.work_of_trainers / 2);
  EXPECT_EQ(together.limit, Cost::CORES);
  // With enough cores the path decides again.
  EXPECT_DOUBLE_EQ(RingCost(TableOf(4, 1), {.cores = 16}, RoundCosts()).seconds, apart.seconds);
}

TEST(CostTest, AMembersCoresShareItsWorkAndABurstPassesAtOnce) {
  const Cost one = ServerCost(TableOf(4, 2), {.cores = 0}, RoundCosts()),
             many = ServerCost(TableOf(4, 2), {.cores = 0, .member_cores = 4}, RoundCosts());
  EXPECT_NEAR(many.moving, one.moving / 4, 1e-12);
  EXPECT_NEAR(many.updating, one.updating / 4, 1e-12);
  EXPECT_EQ(many.work_of_servers, one.work_of_servers);
  // A trainer calls each server, and a server is called by each trainer.
  const double calls = 4 * 2 * 20e-6;
  EXPECT_NEAR(one.work_of_trainers, 4 * (2e5 * 4e-9 + 200 * 100e-9) + calls, 1e-12);
  const Machines slow{.transport = Machines::NETWORK, .bits_per_second = 8e6};
  Machines bursting = slow;
  bursting.burst_bytes = 1000;
  EXPECT_NEAR(RingCost(TableOf(4, 1), slow, RoundCosts()).link -
                  RingCost(TableOf(4, 1), bursting, RoundCosts()).link,
              1e-3, 1e-9);
}

// The figures of a probe as the model itself makes them.
ProbeFigures Modelled(Probe probe, Machines::Transport transport, const Synchronisation& what) {
  const Machines where{.transport = transport, .cores = 0};
  const CostProfile costs = RoundCosts();
  const Cost cost =
      probe >= Probe::SERVER_SMALL ? ServerCost(what, where, costs) : RingCost(what, where, costs);
  return {probe, transport, what, cost.seconds, cost.work_of_trainers, cost.work_of_servers};
}

std::vector<ProbeFigures> ModelledProbes() {
  const auto dense = [](double bytes, int trainers, double row_bytes = 4096) {
    return Synchronisation{.bytes = bytes,
                           .bytes_per_trainer = bytes,
                           .distinct_bytes = bytes,
                           .row_bytes = row_bytes,
                           .trainers = trainers,
                           .servers = 1};
  };
  std::vector<ProbeFigures> probes = {
      Modelled(Probe::RING_ALONE, Machines::SHM, dense(1 << 24, 1)),
      Modelled(Probe::SERVER_ONE, Machines::SHM, dense(1 << 24, 1)),
      Modelled(Probe::SERVER_ROWS, Machines::SHM, dense(1 << 24, 2, 256))};
  for (const auto transport : {Machines::SHM, Machines::TCP}) {
    probes.push_back(Modelled(Probe::RING_SMALL, transport, dense(4, 2)));
    probes.push_back(Modelled(Probe::RING_LARGE, transport, dense(1 << 24, 2)));
    probes.push_back(Modelled(Probe::SERVER_SMALL, transport, dense(4, 2)));
    probes.push_back(Modelled(Probe::SERVER_LARGE, transport, dense(1 << 24, 2)));
  }
  return probes;
}

TEST(FitTest, ProbesThatFollowTheModelGiveItsCoefficientsBack) {
  const CostProfile fitted = Fit(ModelledProbes(), TypicalCosts()), costs = RoundCosts();
  EXPECT_NEAR(fitted.update_ns_per_byte(), costs.update_ns_per_byte(), 0.01);
  EXPECT_NEAR(fitted.apply_ns_per_byte(), costs.apply_ns_per_byte(), 0.02);
  EXPECT_NEAR(fitted.trainer_ns_per_row(), costs.trainer_ns_per_row(), 2);
  EXPECT_NEAR(fitted.server_ns_per_row(), costs.server_ns_per_row(), 3);
  for (const auto& [transport, wanted] :
       {std::pair(fitted.shm(), costs.shm()), {fitted.tcp(), costs.tcp()}}) {
    EXPECT_NEAR(transport.ring_message_us(), wanted.ring_message_us(), 0.1);
    EXPECT_NEAR(transport.ring_ns_per_byte(), wanted.ring_ns_per_byte(), 0.01);
    EXPECT_NEAR(transport.call_us(), wanted.call_us(), 1);
    EXPECT_NEAR(transport.call_server_us(), wanted.call_server_us(), 1);
    EXPECT_NEAR(transport.trainer_ns_per_byte(), wanted.trainer_ns_per_byte(), 0.05);
    EXPECT_NEAR(transport.server_ns_per_byte(), wanted.server_ns_per_byte(), 0.05);
  }
}

TEST(FitTest, ANetworkWithoutProbesCostsAsMuchMoreThanTcpAsIsTypical) {
  const CostProfile fitted = Fit(ModelledProbes(), TypicalCosts()), typical = TypicalCosts();
  EXPECT_NEAR(fitted.network().ring_ns_per_byte() / fitted.tcp().ring_ns_per_byte(),
              typical.network().ring_ns_per_byte() / typical.tcp().ring_ns_per_byte(), 1e-6);
}

TEST(FitTest, NoiseMakesNoCoefficientNegative) {
  std::vector<ProbeFigures> probes = ModelledProbes();
  for (ProbeFigures& probe : probes) {
    if (probe.probe == Probe::SERVER_ONE) probe.work_of_servers /= 4;
    if (probe.probe == Probe::SERVER_ROWS) probe.work_of_trainers /= 4;
  }
  const CostProfile fitted = Fit(probes, TypicalCosts());
  EXPECT_EQ(fitted.apply_ns_per_byte(), 0);
  EXPECT_EQ(fitted.trainer_ns_per_row(), 0);
}

class ProfileTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) const {
    const std::string path = folder_ / "costs.textproto";
    std::ofstream(path) << text;
    return path;
  }
  const support::TempFolder folder_;
};

TEST_F(ProfileTest, AProfileIsReadBack) {
  const std::string path = folder_ / "costs.textproto";
  ASSERT_TRUE(WriteProfile(RoundCosts(), path).ok());
  const auto read = ReadProfile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->DebugString(), RoundCosts().DebugString());
}

TEST_F(ProfileTest, DamagedProfilesAreRefused) {
  const std::string good = RoundCosts().DebugString();
  const std::string wanted = "update_ns_per_byte: 1";
  ASSERT_NE(good.find(wanted), std::string::npos);
  const auto with = [&](const std::string& value) {
    std::string text = good;
    return text.replace(text.find(wanted), wanted.size(), "update_ns_per_byte: " + value);
  };
  const auto without = [&](const std::string& field) {
    std::string text = good;
    const size_t place = text.find(field);
    return text.erase(place, text.find('\n', place) - place);
  };
  for (const std::string& text :
       {without("call_us"), without("apply_ns"), without("cores"), std::string(),
        std::string("no profile"), good.substr(0, good.size() / 2), with("-1"), with("nan")}) {
    const auto read = ReadProfile(Write(text));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ReadProfile(folder_ / "absent").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ReadProfile(Write(good)).ok());
}

TEST(CostTest, TypicalCostsAreComplete) {
  const CostProfile typical = TypicalCosts();
  for (const TransportCosts& transport : {typical.shm(), typical.tcp(), typical.network()}) {
    EXPECT_GT(transport.ring_message_us(), 0);
    EXPECT_GT(transport.call_us(), 0);
    EXPECT_GT(transport.server_ns_per_byte(), 0);
  }
}

}  // namespace
}  // namespace tandem::bench
