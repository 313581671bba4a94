// Master service and clients end to end, in one process over loopback, with short periods.
#include <atomic>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "proto/master.pb.h"
#include "rpc/channel.h"
#include "rpc/master/client.h"
#include "rpc/master/service.h"
#include "rpc/protocol_version.h"
#include "rpc/role_trace.h"
#include "tests/support/wait_limit.h"

namespace tandem::rpc {
namespace {

using ClientOr = absl::StatusOr<std::unique_ptr<MasterClient>>;

using support::Soon;

MembershipOptions FastMaster(uint32_t num_ps, uint32_t num_trainers) {
  return {.num_ps = num_ps,
          .num_trainers = num_trainers,
          .job_fingerprint = 1,
          .register_timeout_seconds = 10,
          .heartbeat_timeout_seconds = 0.6,
          .register_hold_seconds = 0.1,
          .linger_seconds = 0.3};
}

MasterClientOptions FastClient() {
  return {.connect_timeout = absl::Seconds(10),
          .heartbeat_period = absl::Milliseconds(50),
          .heartbeat_deadline = absl::Milliseconds(300),
          .master_timeout = absl::Milliseconds(500)};
}

// A master whose members are threads of this process.
class MasterTest : public testing::Test {
 protected:
  void StartMaster(const MembershipOptions& options, const Credentials& credentials = {}) {
    service_ = std::make_unique<MasterService>(options, /*tick_seconds=*/0.02);
    server_ = std::make_unique<Server>(credentials);
    service_->RegisterHandlers(*server_);
    ASSERT_TRUE(server_->Start("127.0.0.1:0").ok());
    address_ = server_->address();
  }

  // Registers all members at once. Returns clients in the order of `selves`.
  std::vector<ClientOr> ConnectAll(const std::vector<MemberSelf>& selves) {
    std::vector<ClientOr> clients(selves.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < selves.size(); ++i) {
      threads.emplace_back([&, i] {
        clients[i] = MasterClient::Connect(
            address_, selves[i], [this](absl::Status status) { RecordFailure(std::move(status)); },
            FastClient());
      });
    }
    for (auto& thread : threads) thread.join();
    return clients;
  }
  static MemberSelf Self(Role role, int64_t pid, int index) {
    return {.role = role,
            .host = "host",
            .pid = pid,
            .address = "host:" + std::to_string(pid),
            .preferred_index = index,
            .incarnation = 1,
            .job_fingerprint = 1};
  }
  std::vector<ClientOr> ConnectOnePsTwoTrainers() {
    StartMaster(FastMaster(1, 2));
    auto clients = ConnectAll({Self(PS, 100, 0), Self(TRAINER, 200, 0), Self(TRAINER, 201, 1)});
    for (const auto& client : clients) EXPECT_TRUE(client.ok()) << client.status();
    return clients;
  }

  // Joins a server, with its own callback and periods, and a trainer to a started master.
  std::pair<ClientOr, ClientOr> ConnectPsAndTrainer(std::function<void(absl::Status)> on_failure,
                                                    const MasterClientOptions& options) {
    ClientOr ps, trainer;
    std::thread joins([&] {
      ps = MasterClient::Connect(address_, Self(PS, 100, 0), std::move(on_failure), options);
    });
    trainer = MasterClient::Connect(
        address_, Self(TRAINER, 200, 0), [](absl::Status) {}, FastClient());
    joins.join();
    return {std::move(ps), std::move(trainer)};
  }

  void RecordFailure(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    failures_.push_back(std::move(status));
  }
  std::vector<absl::Status> WaitForFailures(size_t count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [&] { return failures_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithDeadline(absl::Condition(&enough), Soon()))
        << failures_.size() << " of " << count;
    return failures_;
  }

  static absl::Status Completion(const std::unique_ptr<MasterClient>& client) {
    return support::Await("a member to learn how the job ended",
                          [&] { return client->WaitForCompletion(); });
  }
  absl::Status End() {
    return support::Await("the master to end", [&] { return service_->WaitForEnd(); });
  }

  std::unique_ptr<MasterService> service_;
  std::unique_ptr<Server> server_;
  std::string address_;
  absl::Mutex mutex_;
  std::vector<absl::Status> failures_;
};

TEST_F(MasterTest, AJobRunsFromRegistrationToCompletion) {
  auto clients = ConnectOnePsTwoTrainers();
  const Assignment& first = (*clients[0])->assignment();
  for (const auto& client : clients) {
    const Assignment& assignment = (*client)->assignment();
    EXPECT_EQ(assignment.job_epoch, first.job_epoch);
    EXPECT_NE(assignment.job_epoch, 0u);
    EXPECT_EQ(assignment.job_token.size(), 32u);
    EXPECT_EQ(assignment.generation, 1u);
    EXPECT_EQ(assignment.members.size(), 3u);
    EXPECT_EQ(assignment.shard_map.num_ps(), 1u);
    EXPECT_EQ(assignment.shard_map.Owner(1023), 0u);
    EXPECT_EQ(assignment.MembersOf(TRAINER)[1].address, "host:201");
    EXPECT_EQ(assignment.MembersOf(PS)[0].pid, 100);
  }
  EXPECT_EQ((*clients[2])->assignment().rank, 1u);
  const RequestHeader header = (*clients[2])->MakeHeader();
  EXPECT_EQ(header.job_epoch(), first.job_epoch);
  EXPECT_EQ(header.sender().role(), TRAINER);
  EXPECT_EQ(header.sender().rank(), 1u);
  EXPECT_EQ(header.shard_map_version(), 1u);

  absl::Status ps_status = absl::UnknownError("not run");
  std::thread ps([&] {
    ps_status = Completion(*clients[0]);
    EXPECT_TRUE((*clients[0])->Leave(absl::OkStatus()).ok());
  });
  EXPECT_TRUE((*clients[1])->Leave(absl::OkStatus()).ok());
  EXPECT_EQ(service_->phase(), Phase::RUNNING);
  EXPECT_TRUE((*clients[2])->Leave(absl::OkStatus()).ok());
  ps.join();
  EXPECT_TRUE(ps_status.ok()) << ps_status;
  EXPECT_TRUE(End().ok());
  EXPECT_TRUE(failures_.empty());
}

TEST_F(MasterTest, AMemberThatWaitsHearsOfTheCompletionBeforeItsNextHeartbeat) {
  MembershipOptions patient = FastMaster(1, 1);
  patient.heartbeat_timeout_seconds = 600;
  StartMaster(patient);
  MasterClientOptions rare = FastClient();
  rare.heartbeat_period = absl::Seconds(600);
  const auto [ps, trainer] = ConnectPsAndTrainer([](absl::Status) {}, rare);
  ASSERT_TRUE(ps.ok() && trainer.ok()) << ps.status() << trainer.status();
  EXPECT_TRUE((*trainer)->Leave(absl::OkStatus()).ok());
  EXPECT_TRUE(Completion(*ps).ok()) << "within the limit of any wait of a test";
}

TEST_F(MasterTest, AMembersErrorReachesEveryoneWithItsCode) {
  auto clients = ConnectOnePsTwoTrainers();
  absl::StatusOr<std::string> waited;
  std::thread waiter([&] { waited = (*clients[0])->store().Get("never", Soon()); });
  EXPECT_TRUE((*clients[2])->Leave(absl::InvalidArgumentError("tables[item].dim is 0")).ok());
  const absl::Status expected = absl::InvalidArgumentError("trainer-1: tables[item].dim is 0");
  EXPECT_EQ(Completion(*clients[0]), expected);
  waiter.join();
  EXPECT_EQ(waited.status().code(), expected.code()) << waited.status();
  for (const absl::Status& failure : WaitForFailures(2)) EXPECT_EQ(failure, expected);
  EXPECT_EQ((*clients[1])->failure(), expected);
  EXPECT_EQ((*clients[1])->store().Set("a", "b"), expected);
  for (int i : {0, 1}) EXPECT_TRUE((*clients[i])->Leave((*clients[i])->failure()).ok());
  EXPECT_EQ(End(), expected);
  EXPECT_EQ(failures_.size(), 2u);  // once each; the one that failed is not told
}

TEST_F(MasterTest, AMemberThatWaitsForTheEndGoesOnOnlyWhenItsCallbackHasReturned) {
  StartMaster(FastMaster(1, 1));
  std::atomic<bool> returned = false;
  const auto [ps, trainer] = ConnectPsAndTrainer(
      [&returned](absl::Status) {
        absl::SleepFor(absl::Milliseconds(300));
        returned = true;
      },
      FastClient());
  ASSERT_TRUE(ps.ok() && trainer.ok()) << ps.status() << trainer.status();
  EXPECT_TRUE((*trainer)->Leave(absl::DataLossError("a broken file")).ok());
  EXPECT_TRUE(absl::IsDataLoss(Completion(*ps)));
  EXPECT_TRUE(returned) << "the callback may use what its owner frees after the wait";
}

TEST_F(MasterTest, ASilentMemberFailsTheJobByName) {
  auto clients = ConnectOnePsTwoTrainers();
  clients[1]->reset();  // gone without a word
  const absl::Status status = Completion(*clients[2]);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(
      std::string(status.message()).rfind("trainer-0 (host pid 200) has not answered for 0.", 0),
      0u)
      << status;
  EXPECT_EQ(End(), status);  // after the linger
}

TEST_F(MasterTest, ALostMasterIsAFailureThatNamesIt) {
  auto clients = ConnectOnePsTwoTrainers();
  absl::StatusOr<std::string> waited;
  std::thread waiter([&] { waited = (*clients[1])->store().Get("never", Soon()); });
  server_->Shutdown(0);
  for (const absl::Status& failure : WaitForFailures(3)) {
    EXPECT_TRUE(absl::IsUnavailable(failure));
    EXPECT_EQ(std::string(failure.message())
                  .rfind("master-0 (" + address_ + ") has not answered for ", 0),
              0u)
        << failure;
  }
  waiter.join();
  EXPECT_TRUE(absl::IsUnavailable(waited.status()) || absl::IsCancelled(waited.status()))
      << waited.status();
  EXPECT_FALSE(Completion(*clients[0]).ok());
  EXPECT_FALSE((*clients[0])->Leave(absl::OkStatus()).ok());
}

TEST_F(MasterTest, AMasterThatAcceptsButNeverAnswersIsLost) {
  auto clients = ConnectOnePsTwoTrainers();
  server_->Shutdown(0);
  Server stopped;  // acts like a stopped process: connections are accepted, calls are not answered
  std::vector<Reply> held;
  absl::Mutex mutex;
  stopped.Handle("tandem.MasterService", "Heartbeat", MethodKind::UNARY, [&](Payload, Reply reply) {
    absl::MutexLock lock(&mutex);
    held.push_back(std::move(reply));
  });
  ASSERT_TRUE(stopped.Start(address_).ok());
  EXPECT_EQ(WaitForFailures(3).size(), 3u);
  clients.clear();
  stopped.Shutdown(0);
}

TEST_F(MasterTest, AnotherMasterAtTheSameAddressIsNotOurs) {
  auto clients = ConnectOnePsTwoTrainers();
  server_->Shutdown(0);
  MasterService other(FastMaster(1, 2), 0.02);
  Server server;
  other.RegisterHandlers(server);
  ASSERT_TRUE(server.Start(address_).ok());
  for (const absl::Status& failure : WaitForFailures(3)) {
    EXPECT_NE(failure.ToString().find("it has been restarted"), std::string::npos) << failure;
  }
}

TEST_F(MasterTest, AnUnreachableMasterIsNamedAfterTheTimeout) {
  MasterClientOptions options = FastClient();
  options.connect_timeout = absl::Milliseconds(300);
  const auto client = MasterClient::Connect("127.0.0.1:1", Self(TRAINER, 1, -1), nullptr, options);
  EXPECT_TRUE(absl::IsUnavailable(client.status()));
  EXPECT_EQ(std::string(client.status().message())
                .rfind("master-0 at 127.0.0.1:1 unreachable for 0.3 s: failed to connect", 0),
            0u)
      << client.status();
}

TEST_F(MasterTest, AMemberMayComeBeforeItsMaster) {
  Server probe;  // a port that was free
  ASSERT_TRUE(probe.Start("127.0.0.1:0").ok());
  const std::string address = probe.address();
  probe.Shutdown(0);
  ClientOr client;
  std::thread member([&] {
    client = MasterClient::Connect(address, Self(TRAINER, 1, -1), nullptr, FastClient());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  service_ = std::make_unique<MasterService>(FastMaster(0, 1), 0.02);
  server_ = std::make_unique<Server>();
  service_->RegisterHandlers(*server_);
  ASSERT_TRUE(server_->Start(address).ok());
  member.join();
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Leave(absl::OkStatus()).ok());
  EXPECT_TRUE(End().ok());
}

TEST_F(MasterTest, ARefusedMemberLearnsWhyAndTheJobGoesOn) {
  StartMaster(FastMaster(0, 1));
  MemberSelf stranger = Self(TRAINER, 9, -1);
  stranger.job_fingerprint = 2;
  const auto refused = MasterClient::Connect(address_, stranger, nullptr, FastClient());
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  auto clients = ConnectAll({Self(TRAINER, 1, -1)});
  EXPECT_TRUE(clients[0].ok()) << clients[0].status();
}

TEST_F(MasterTest, AMemberOfAJobWithAnotherSecretIsRefusedAndTheJobIsUnharmed) {
  const Credentials job(*Secret::Draw());
  StartMaster(FastMaster(0, 1), job);
  for (const Credentials& shown : {Credentials(*Secret::Draw()), Credentials()}) {
    MasterClientOptions options = FastClient();
    options.credentials = shown;
    const auto refused = MasterClient::Connect(address_, Self(TRAINER, 1, 0), nullptr, options);
    EXPECT_TRUE(absl::IsUnauthenticated(refused.status())) << refused.status();
    EXPECT_NE(
        refused.status().ToString().find("the master at " + address_ + " belongs to another job"),
        std::string::npos)
        << refused.status();
  }
  MasterClientOptions options = FastClient();
  options.credentials = job;
  const auto member = MasterClient::Connect(address_, Self(TRAINER, 2, 0), nullptr, options);
  ASSERT_TRUE(member.ok()) << member.status();
  EXPECT_EQ((*member)->credentials().shown(), job.shown());
  EXPECT_TRUE((*member)->store().Set("key", "value").ok());
  EXPECT_TRUE((*member)->Leave(absl::OkStatus()).ok());
  EXPECT_TRUE(service_->WaitForEnd().ok());
}

TEST_F(MasterTest, AMemberWithASecretJoinsNoMasterThatDoesNotKnowIt) {
  StartMaster(FastMaster(0, 1));  // serves everybody
  MasterClientOptions options = FastClient();
  options.credentials = Credentials(*Secret::Draw());
  const auto refused = MasterClient::Connect(address_, Self(TRAINER, 1, 0), nullptr, options);
  EXPECT_TRUE(absl::IsUnauthenticated(refused.status())) << refused.status();
  EXPECT_NE(
      refused.status().ToString().find("the master at " + address_ + " belongs to another job"),
      std::string::npos)
      << refused.status();
}

TEST_F(MasterTest, AMemberThatSpeaksForAnotherIsRefused) {
  auto clients = ConnectOnePsTwoTrainers();
  Channel channel(address_);
  const auto call = [&](const std::string& method, const google::protobuf::MessageLite& request) {
    return channel.Call("/tandem.MasterService/" + method, Payload(request.SerializeAsString()), {})
        .Wait(Soon())
        .status();
  };
  LeaveRequest leave;
  *leave.mutable_header() = (*clients[1])->MakeHeader();
  leave.set_code(static_cast<int32_t>(absl::StatusCode::kUnavailable));
  leave.set_member_key("a guess");
  EXPECT_TRUE(absl::IsPermissionDenied(call("Leave", leave)));
  RegisterRequest again;  // as pid 200, which /proc shows to everybody
  again.mutable_header()->set_protocol_version(kProtocolVersion);
  again.mutable_header()->mutable_sender()->set_role(TRAINER);
  again.mutable_header()->mutable_sender()->set_incarnation(1);
  again.set_host("host");
  again.set_pid(200);
  again.set_address("host:200");
  again.set_job_fingerprint(1);
  EXPECT_TRUE(absl::IsUnavailable(call("Register", again)));
  again.set_member_key(std::string(65, 'k'));
  EXPECT_TRUE(absl::IsInvalidArgument(call("Register", again)));
  EXPECT_EQ(service_->phase(), Phase::RUNNING);
}

TEST_F(MasterTest, MembersMissingAtTheTimeoutAreNamedToTheOthers) {
  MembershipOptions options = FastMaster(0, 2);
  options.register_timeout_seconds = 0.4;
  StartMaster(options);
  auto clients = ConnectAll({Self(TRAINER, 1, 0)});
  EXPECT_EQ(
      clients[0].status(),
      absl::UnavailableError("only 1 of 2 trainers registered within 0.4 s: missing trainer-1"));
  EXPECT_EQ(End(), clients[0].status());
}

TEST_F(MasterTest, TheMasterMayFailTheJobItself) {
  auto clients = ConnectOnePsTwoTrainers();
  service_->Fail(absl::CancelledError("interrupted"));
  EXPECT_EQ(Completion(*clients[0]), absl::CancelledError("interrupted"));
  EXPECT_EQ(End(), absl::CancelledError("interrupted"));
}

TEST_F(MasterTest, TheStoreIsSharedByAllMembers) {
  auto clients = ConnectOnePsTwoTrainers();
  Store& a = (*clients[1])->store();
  Store& b = (*clients[2])->store();
  absl::StatusOr<std::string> got;
  std::thread getter([&] { got = b.Get("key", Soon()); });
  ASSERT_TRUE(a.Set("key", std::string("v\0alue", 6)).ok());
  getter.join();
  EXPECT_EQ(*got, std::string("v\0alue", 6));
  absl::Status waited;
  std::thread waiter([&] { waited = b.Wait("n", 3, Soon()); });
  EXPECT_EQ(*a.Add("n", 1), 1);
  EXPECT_EQ(*b.Add("n", 2), 3);
  waiter.join();
  EXPECT_TRUE(waited.ok()) << waited;
  EXPECT_EQ(*a.Add("n", -5), -2);
  const auto missing = a.Get("missing", absl::Now() + absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(missing.status()));
  EXPECT_NE(missing.status().ToString().find("missing"), std::string::npos);
  EXPECT_TRUE(absl::IsDeadlineExceeded(a.Wait("n", 3, absl::Now() + absl::Milliseconds(50))));
}

TEST_F(MasterTest, TheStoreTakesNoValueAboveItsLimitAndNoSumThatIsNone) {
  auto clients = ConnectOnePsTwoTrainers();
  Store& store = (*clients[1])->store();
  for (const size_t size : {kMaxStoreValueBytes + 1, 3 * kMaxStoreValueBytes}) {
    const absl::Status status = store.Set("key", std::string(size, 'v'));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  ASSERT_TRUE(store.Add("n", std::numeric_limits<int64_t>::max()).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(store.Add("n", 1).status()));
  EXPECT_EQ(*store.Add("n", 0), std::numeric_limits<int64_t>::max());
}

// The numbers under which a role recorded each call, by the call's name.
std::map<std::string, std::set<uint64_t>> TraceIds(const RoleTrace& trace) {
  std::map<std::string, std::set<uint64_t>> ids;
  for (const RecordedSpan& span : trace.spans())
    ids[trace.names(static_cast<int>(span.name()))].insert(span.trace_id());
  return ids;
}

TEST_F(MasterTest, TracedCallsAreRecordedHereAndAtTheMasterAndOthersAreNot) {
  auto clients = ConnectOnePsTwoTrainers();
  MasterClient& client = **clients[2];
  ASSERT_TRUE(client.store().Set("before", "x").ok());
  const auto tracer = std::make_shared<Tracer>();
  client.TraceCalls(tracer);
  ASSERT_TRUE(client.store().Set("key", "x").ok());
  ASSERT_TRUE((*clients[1])->store().Set("untraced", "x").ok());
  absl::Status waited;
  std::thread waiter([&] { waited = client.store().Wait("n", 1, Soon()); });
  ASSERT_TRUE((*clients[1])->store().Add("n", 1).ok());
  waiter.join();
  ASSERT_TRUE(waited.ok()) << waited;
  const auto master =
      client.TakeTrace(Soon());  // and the heartbeat that TraceCalls asks for has been
  ASSERT_TRUE(master.ok()) << master.status();
  client.TraceCalls(nullptr);
  ASSERT_TRUE(client.store().Set("after", "x").ok());

  EXPECT_EQ(master->role(), "master");
  const auto served = TraceIds(*master), called = TraceIds(TakeRoleTrace("trainer-1", *tracer));
  for (const char* method : {"Set", "WaitCounter"}) {
    ASSERT_EQ(served.count(method), 1u) << method;
    EXPECT_EQ(served.at(method).size(), 1u) << method;
    EXPECT_EQ(served.at(method), called.at(method)) << method;
  }
  EXPECT_GE(served.at("Heartbeat").size(), 1u);
  EXPECT_EQ(served.count("Add") + served.count("Register"), 0u);
  EXPECT_EQ(TraceIds(*client.TakeTrace(Soon())).count("Set"), 0u)
      << "of the time after, or taken twice";
  EXPECT_TRUE(absl::IsDeadlineExceeded(client.TakeTrace(absl::Now() - absl::Seconds(1)).status()));
}

TEST_F(MasterTest, MalformedAndForeignRequestsAreRefused) {
  auto clients = ConnectOnePsTwoTrainers();
  Channel channel(address_);
  auto call = [&](const std::string& method, std::string bytes) {
    return channel.Call("/tandem.MasterService/" + method, Payload(std::move(bytes)), {})
        .Wait(Soon())
        .status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(call("Heartbeat", "\xff\xff")));
  EXPECT_TRUE(absl::IsFailedPrecondition(call("Heartbeat", "")));  // no version
  HeartbeatRequest beat;
  *beat.mutable_header() = (*clients[0])->MakeHeader();
  EXPECT_TRUE(absl::IsPermissionDenied(
      call("Heartbeat", beat.SerializeAsString())));  // without the member's key
  beat.mutable_header()->set_job_epoch(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(call("Heartbeat", beat.SerializeAsString())));
  RegisterRequest late;
  late.mutable_header()->set_protocol_version(kProtocolVersion);
  late.mutable_header()->mutable_sender()->set_role(TRAINER);
  late.set_job_fingerprint(1);
  late.set_preferred_index(-1);
  EXPECT_TRUE(absl::IsFailedPrecondition(call("Register", late.SerializeAsString())));
  EXPECT_EQ(service_->phase(), Phase::RUNNING);
}

TEST_F(MasterTest, ClosingTheMasterAnswersTheCallsItHolds) {
  StartMaster(FastMaster(0, 2));
  Channel channel(address_);
  RegisterRequest request;
  request.mutable_header()->set_protocol_version(kProtocolVersion);
  request.mutable_header()->mutable_sender()->set_role(TRAINER);
  request.set_job_fingerprint(1);
  request.set_preferred_index(-1);
  const auto held =
      channel.Call("/tandem.MasterService/Register", Payload(request.SerializeAsString()), {});
  service_ = nullptr;  // before its server
  EXPECT_TRUE(held.Wait(Soon()).ok() || absl::IsCancelled(held.Wait(Soon()).status()));
  EXPECT_TRUE(absl::IsCancelled(
      channel.Call("/tandem.MasterService/Register", Payload(request.SerializeAsString()), {})
          .Wait(Soon())
          .status()));
}

}  // namespace
}  // namespace tandem::rpc
