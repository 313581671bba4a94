// Saved rows put back: a run goes on, bit for bit, on any number of servers. A refused load changes
// nothing.
#include <filesystem>
#include <fstream>

#include "absl/synchronization/notification.h"
#include "ps/local/local_client.h"
#include "tests/ps/cluster.h"
#include "tests/ps/training.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSaved = 10, kLast = 30;

std::vector<std::string> Names(const std::vector<SavedFile>& files) {
  std::vector<std::string> names;
  for (const SavedFile& file : files) names.push_back(file.name());
  return names;
}

MakeClient LocalMaker(TableHost& host) {
  return
      [&host](uint32_t trainer) { return std::make_unique<LocalClient>(host, trainer, kTrainers); };
}
MakeClient RemoteMaker(PsCluster& cluster) {
  return [&cluster](uint32_t trainer) {
    return cluster.MakeClient(trainer, kTrainers, {absl::Seconds(30), 1 << 12});
  };
}

class LoadTest : public testing::Test {
 protected:
  // Two servers train to kSaved and save, then go on to kLast. The loading servers belong to
  // another job.
  static void SetUpTestSuite() {
    folder_ = new support::TempFolder;
    PsCluster cluster(2, 2, kTestJobEpoch - 1);
    const TrainerClients clients = MakeClients(RemoteMaker(cluster));
    saved_hash_ = TrainAll(clients, {1, kSaved})[0].hash;
    const auto files =
        clients[0].tables->Save(kSaved, folder_->path(), Deadline()).Wait(Deadline());
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = new std::vector<std::string>(Names(*files));
    ASSERT_GE(files_->size(), 6u);
    unbroken_ = new std::vector<Trace>(TrainAll(clients, {kSaved + 1, kLast}));
  }
  static void TearDownTestSuite() {
    delete folder_;
    delete files_;
    delete unbroken_;
  }

  static absl::Status Load(const Clients& client, uint64_t step = kSaved) {
    return client.tables->Load(step, folder_->path(), *files_, Deadline())
        .Wait(Deadline())
        .status();
  }

  static void ExpectGoesOn(const MakeClient& make) {
    const TrainerClients clients = MakeClients(make);
    const absl::Status loaded = Load(clients[0]);
    ASSERT_TRUE(loaded.ok()) << loaded;
    const auto hash = clients[1].tables->Hash().Wait(Deadline());
    EXPECT_EQ(hash->hash, saved_hash_.hash);
    EXPECT_EQ(hash->num_rows, saved_hash_.num_rows);
    ExpectSame(TrainAll(clients, {kSaved + 1, kLast}), *unbroken_);
  }

  static support::TempFolder* folder_;
  static std::vector<std::string>* files_;
  static HashResult saved_hash_;
  static std::vector<Trace>* unbroken_;
};
support::TempFolder* LoadTest::folder_;
std::vector<std::string>* LoadTest::files_;
HashResult LoadTest::saved_hash_;
std::vector<Trace>* LoadTest::unbroken_;

TEST_F(LoadTest, RunGoesOnBitForBitOnAnyNumberOfServers) {
  for (int servers : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << servers << " servers");
    PsCluster cluster(servers, servers == 2 ? 3 : 1);
    ExpectGoesOn(RemoteMaker(cluster));
  }
}

TEST_F(LoadTest, RunGoesOnBitForBitInOneProcess) {
  for (int workers : {1, 3}) {
    SCOPED_TRACE(testing::Message() << workers << " workers");
    TableHost host(workers);
    ExpectGoesOn(LocalMaker(host));
  }
}

TEST_F(LoadTest, StepCountsFromTheOneLoaded) {
  TableHost host(2);
  const TrainerClients clients = MakeClients(LocalMaker(host));
  ASSERT_TRUE(Load(clients[0]).ok());
  const auto ids = MakeIds(5, 20);
  std::vector<float> rows(60), again(60), gradients(60, 1);
  const auto pull = [&](uint64_t step, std::vector<float>& target) {
    return clients[0].rows->Pull(step, true, {{1, ids, target.data()}});
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(pull(kSaved, rows).Wait(Deadline()).status()));
  EXPECT_TRUE(pull(kSaved + 1, rows).Wait(Deadline()).ok());
  LocalClient late(host, 0, kTrainers);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      late.Push(kSaved, 0, {{1, ids, gradients.data()}}).Wait(Deadline()).status()));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(clients[0].rows->GradientNorm(kSaved).Wait(Deadline()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      clients[0].rows->Commit({kSaved + 2, {}, 1, true}).Wait(Deadline()).status()));
  const support::TempFolder folder;
  EXPECT_TRUE(clients[0].tables->Save(kSaved, folder.path(), Deadline()).Wait(Deadline()).ok());
  const auto ahead = pull(kSaved + 2, again);
  for (const auto& client : clients)
    client.rows->Commit({kSaved + 1, {{1, 1.0f}, {2, 1.0f}, {3, 1.0f}}, 1, /*skip=*/true});
  EXPECT_TRUE(ahead.Wait(Deadline()).ok());
  EXPECT_EQ(again, rows);
  EXPECT_EQ(clients[0].tables->Hash().Wait(Deadline())->hash, saved_hash_.hash);
}

TEST_F(LoadTest, LoadRepeatedBeforeAnythingElseIsTheSame) {
  PsCluster cluster(2, 1);
  const TrainerClients clients = MakeClients(RemoteMaker(cluster));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Load(clients[0]).ok());
  EXPECT_EQ(clients[0].tables->Hash().Wait(Deadline())->hash, saved_hash_.hash);
  ExpectSame(TrainAll(clients, {kSaved + 1, kLast}), *unbroken_);
}

TEST_F(LoadTest, EvaluationPullsBeforeItDoNotDisturb) {
  TableHost host(2);
  const TrainerClients clients = MakeClients(LocalMaker(host));
  const auto ids = MakeIds(5, 20);
  std::vector<float> rows(60);
  for (bool create : {false, true}) {
    ASSERT_TRUE(clients[1].rows->Pull(0, create, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
  }
  ASSERT_TRUE(Load(clients[0]).ok());
  EXPECT_EQ(clients[0].tables->Hash().Wait(Deadline())->hash, saved_hash_.hash);
}

TEST_F(LoadTest, RefusedOnceAStepHasBegunAndTheStepGoesOn) {
  const auto ids = MakeIds(5, 20);
  std::vector<float> rows(60), gradients(60, 1);
  const std::vector<std::function<void(const Clients&)>> beginnings = {
      [&](const Clients& client) {
        client.rows->Pull(1, true, {{1, ids, rows.data()}});
      },
      [&](const Clients& client) {
        client.rows->Pull(2, true, {{1, ids, rows.data()}});
      },
      [&](const Clients& client) {
        client.rows->Push(1, 0, {{1, ids, gradients.data()}});
      },
      [&](const Clients& client) { client.rows->GradientNorm(1); },
      [&](const Clients& client) {
        client.rows->Commit({1, {}, 1, true});
      }};
  for (const auto& begin : beginnings) {
    TableHost host(2);
    const TrainerClients clients = MakeClients(LocalMaker(host));
    begin(clients[1]);
    const absl::Status status = Load(clients[0]);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find("training has begun"), absl::string_view::npos) << status;
    EXPECT_EQ(clients[0].tables->Hash().Wait(Deadline())->num_rows, 0u);
    clients[0].rows->Commit({1, {}, 1, true});
    EXPECT_TRUE(clients[1].rows->Commit({1, {}, 1, true}).Wait(Deadline()).ok());
  }
}

TEST_F(LoadTest, RefusedWhenAStepBeginsMeanwhile) {
  // The pull is posted while the worker reads. The swap must not follow the pull.
  TableHost host(1);
  const TrainerClients clients = MakeClients(LocalMaker(host));
  const auto loading = clients[0].tables->Load(kSaved, folder_->path(), *files_, Deadline());
  const auto ids = MakeIds(5, 20);
  std::vector<float> rows(60);
  const auto pull = clients[1].rows->Pull(1, true, {{1, ids, rows.data()}});
  const absl::Status loaded = loading.Wait(Deadline()).status(),
                     pulled = pull.Wait(Deadline()).status();
  // The call that came first has won. Never both succeed.
  EXPECT_NE(loaded.ok(), pulled.ok()) << loaded << " and " << pulled;
}

// Changes one thing about a good load. Expects a refusal that names it, and tables that still take
// the good load.
class RefusedLoadTest : public LoadTest {
 protected:
  RefusedLoadTest() {
    for (const std::string& name : *files_) fs::copy_file(*folder_ / name, own_ / name);
  }

  void ExpectRefused(const LoadArgs& args, absl::StatusCode code, const std::string& word,
                     const std::vector<TableSpec>* others = nullptr) {
    TableHost host(2);
    LocalClient client(host, 0, 1);
    ASSERT_TRUE(
        client.CreateTables(others != nullptr ? *others : TrainedSpecs(), absl::Seconds(30)).ok());
    const auto load = [&](const LoadArgs& with) {
      absl::Notification done;
      absl::Status status;
      host.Load(with, [&](absl::Status result) {
        status = result;
        done.Notify();
      });
      EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(30)));
      return status;
    };
    const absl::Status status = load(args);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(word), absl::string_view::npos)
        << status << "\nwanted: " << word;
    EXPECT_EQ(client.Hash().Wait(Deadline())->num_rows, 0u);
    const support::TempFolder empty;
    EXPECT_TRUE(client.Save(0, empty.path(), Deadline()).Wait(Deadline()).ok())
        << "step 0 is still the last one applied";
    if (others != nullptr) return;
    EXPECT_TRUE(load({kSaved, folder_->path(), *files_, Router::RoundRobin(1).ShardsOf(0)}).ok());
    EXPECT_EQ(client.Hash().Wait(Deadline())->hash, saved_hash_.hash);
  }
  void ExpectInvalid(const LoadArgs& args, const std::string& word) {
    ExpectRefused(args, absl::StatusCode::kInvalidArgument, word);
  }
  void ExpectUnfit(const LoadArgs& args, const std::string& word) {
    ExpectRefused(args, absl::StatusCode::kFailedPrecondition, word);
  }

  // The last file: the files before it are good and have been read.
  std::string LastPath() const { return own_ / files_->back(); }

  const support::TempFolder own_;
  LoadArgs args_{kSaved, own_.path(), *files_, Router::RoundRobin(1).ShardsOf(0)};
};

TEST_F(RefusedLoadTest, FolderAndNames) {
  LoadArgs relative = args_, slash = args_, hidden = args_, empty = args_, twice = args_;
  relative.folder = "here";
  slash.files[1] = "../" + slash.files[1];
  hidden.files[1] = "..";
  empty.files[1] = "";
  twice.files[1] = twice.files[0];
  ExpectInvalid(relative, "\"here\" is not an absolute path");
  for (const LoadArgs& args : {slash, hidden, empty})
    ExpectInvalid(args, "\"" + args.files[1] + "\" is not the name of a file");
  ExpectInvalid(twice, twice.files[0] + " comes twice");
}

TEST_F(RefusedLoadTest, ShardsAndStep) {
  const auto with = [&](std::vector<std::pair<uint32_t, uint32_t>> ranges) {
    LoadArgs args = args_;
    args.shards.clear();
    for (const auto& [first, count] : ranges) {
      args.shards.emplace_back().set_first(first);
      args.shards.back().set_count(count);
    }
    return args;
  };
  ExpectInvalid(with({{0, 1025}}), "1025 virtual shards from 0; there are 1024");
  ExpectInvalid(with({{1024, 1}}), "1 virtual shards from 1024");
  ExpectInvalid(with({{5, ~uint32_t{0}}}), "from 5");
  ExpectInvalid(with({{5, 0}}), "0 virtual shards");
  ExpectInvalid(with({{0, 10}, {20, 5}, {9, 2}}), "virtual shard 9 comes twice");
  LoadArgs late = args_;
  late.step = uint64_t{1} << 32;
  ExpectInvalid(late, "2^32 - 1");
}

TEST_F(RefusedLoadTest, FilesOfOtherTables) {
  auto fewer = TrainedSpecs(), dim = TrainedSpecs(), slots = TrainedSpecs(),
       halves = TrainedSpecs(), name = TrainedSpecs();
  fewer.pop_back();
  dim[2] = MakeTableSpec(3, 9, SPARSE_ADAM);
  slots[2] = MakeTableSpec(3, 8, SPARSE_ADAGRAD);
  halves[2].set_storage(STORED_BF16);
  name[2].set_name("other");
  const auto code = absl::StatusCode::kFailedPrecondition;
  ExpectRefused(args_, code, "there is no table 3 (table3)", &fewer);
  ExpectRefused(args_, code,
                "has rows of table table3 with dim 8 in F32 and 16 slot values; the job's table "
                "table3 has dim 9",
                &dim);
  ExpectRefused(args_, code, "has dim 8 in F32 and 8 slot values", &slots);
  ExpectRefused(args_, code, "has dim 8 in BF16 and 16 slot values", &halves);
  ExpectRefused(args_, code, "the job's table other", &name);
}

TEST_F(RefusedLoadTest, RowsThatComeTwiceOrFromAnotherStep) {
  fs::copy_file(LastPath(), own_ / "copy.rows");
  LoadArgs copied = args_, early = args_;
  copied.files.push_back("copy.rows");
  early.step = kSaved - 1;
  ExpectUnfit(copied, "copy.rows: row ");
  ExpectUnfit(early, "is of step 10, later than 9");
}

TEST_F(RefusedLoadTest, FilesThatAreMissingOrDamaged) {
  const auto size = fs::file_size(LastPath());
  fs::resize_file(LastPath(), size - 1);
  ExpectUnfit(args_, LastPath() + ": ends too early");
  std::ofstream(LastPath(), std::ios::app) << "xx";
  ExpectUnfit(args_, LastPath() + ": goes on");
  std::ofstream(LastPath()) << "garbage that is longer than a header, which has fifty-six bytes";
  ExpectUnfit(args_, LastPath() + ": is not a file of table rows");
  fs::remove(LastPath());
  ExpectUnfit(args_, LastPath() + ": cannot be read");
}

TEST_F(LoadTest, ServerLoadsItsOwnShardsOnly) {
  TableHost low(2), high(1);
  uint64_t rows = 0;
  absl::uint128 hash = 0;
  for (auto [host, first, count] : {std::tuple(&low, 0u, 100u), std::tuple(&high, 100u, 924u)}) {
    LocalClient client(*host, 0, 1);
    ASSERT_TRUE(client.CreateTables(TrainedSpecs(), absl::Seconds(30)).ok());
    LoadArgs args{kSaved, folder_->path(), *files_, {}};
    args.shards.emplace_back().set_first(first);
    args.shards.back().set_count(count);
    absl::Notification done;
    host->Load(args, [&](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      done.Notify();
    });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(30)));
    const auto part = client.Hash().Wait(Deadline());
    EXPECT_GT(part->num_rows, 0u);
    rows += part->num_rows;
    hash += part->hash;
  }
  EXPECT_EQ(rows, saved_hash_.num_rows);
  EXPECT_EQ(hash, saved_hash_.hash);
}

TEST_F(LoadTest, RemoteRefusalNamesServerAndFile) {
  PsCluster cluster(2, 1);
  const TrainerClients clients = MakeClients(RemoteMaker(cluster));
  const absl::Status status =
      clients[0]
          .tables->Load(kSaved, folder_->path(), {"nothing.rows"}, Deadline())
          .Wait(Deadline())
          .status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(status.message().substr(0, 20), "load of step 10: ps-") << status;
  EXPECT_NE(status.message().find("nothing.rows: cannot be read"), absl::string_view::npos)
      << status;
}

TEST_F(LoadTest, ClosingTheHostCompletesIt) {
  for (int i = 0; i < 20; ++i) {
    rpc::Future<rpc::Done> loading;
    {
      TableHost host(3);
      const TrainerClients clients = MakeClients(LocalMaker(host));
      loading = clients[0].tables->Load(kSaved, folder_->path(), *files_, Deadline());
    }
    ASSERT_TRUE(loading.ready());
    const absl::Status status = loading.Wait(Deadline()).status();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
}

}  // namespace
}  // namespace tandem::ps
