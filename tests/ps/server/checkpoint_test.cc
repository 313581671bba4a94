// Saved rows: any number of workers and servers writes the same rows, and any number reads them.
// Readers do not trust files.
#include "ps/server/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/base/checked_file.h"
#include "ps/client/clients.h"
#include "ps/local/local_client.h"
#include "ps/store/table.h"
#include "rpc/master/shard_map.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

namespace fs = std::filesystem;

absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

using Folder = support::TempFolder;

std::vector<TableSpec> Specs() {
  TableSpec bytes = MakeTableSpec(2, 17, SPARSE_ROWWISE_ADAGRAD);
  bytes.set_storage(STORED_INT8);
  return {MakeTableSpec(1, 5, SPARSE_ADAM), bytes};
}

// Trains two steps over two tables. Some rows are only pulled.
void Train(const Clients& client) {
  ASSERT_TRUE(client.tables->CreateTables(Specs(), absl::Seconds(30)).ok());
  for (uint64_t step = 1; step <= 2; ++step) {
    for (const TableSpec& spec : Specs()) {
      const auto ids = MakeIds(step + 10 * spec.number(), 200);
      const auto gradients = MakeValues(step, ids.size() * spec.dim());
      std::vector<float> rows(gradients.size());
      ASSERT_TRUE(
          client.rows->Pull(step, true, {{spec.number(), ids, rows.data()}}).Wait(Deadline()).ok());
      const absl::Span<const uint64_t> pushed(ids.data(), 150);
      ASSERT_TRUE(client.rows->Push(step, 0, {{spec.number(), pushed, gradients.data()}})
                      .Wait(Deadline())
                      .ok());
    }
    ASSERT_TRUE(
        client.rows->Commit({step, {{1, 0.1f}, {2, 0.2f}}, 0.5f, false}).Wait(Deadline()).ok());
  }
}

struct RowRecord {
  RowHeader header;
  std::vector<char> values;
};
using RecordMap = std::map<std::pair<uint32_t, uint64_t>, RowRecord>;  // by table and id

std::vector<std::string> Paths(const std::string& folder, const std::vector<SavedFile>& files) {
  std::vector<std::string> paths;
  for (const SavedFile& file : files) paths.push_back(folder + "/" + file.name());
  return paths;
}

RecordMap ReadAll(const std::vector<std::string>& paths) {
  RecordMap records;
  for (const std::string& path : paths) {
    RowFileHeader file;
    const absl::Status status = ReadRows(
        path,
        [&](const RowFileHeader& header) {
          file = header;
          return absl::OkStatus();
        },
        [](uint32_t) { return true; },
        [&](const SavedRow& row) {
          const char* end =
              row.values + RowLayout(file.dim, file.storage, file.num_slot_values).value_bytes();
          const bool is_new = records
                                  .emplace(std::pair(file.number, row.header.id),
                                           RowRecord{row.header, {row.values, end}})
                                  .second;
          EXPECT_TRUE(is_new) << "row " << row.header.id << " comes twice";
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
  }
  return records;
}

void ExpectSame(const RecordMap& a, const RecordMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (auto left = a.begin(), right = b.begin(); left != a.end(); ++left, ++right) {
    ASSERT_EQ(left->first, right->first);
    EXPECT_EQ(0, std::memcmp(&left->second.header, &right->second.header, sizeof(RowHeader)));
    EXPECT_EQ(left->second.values, right->second.values);
  }
}

// Saves from a local host of `num_workers` into `folder`. Returns the paths of the files.
std::vector<std::string> SaveLocal(int num_workers, const Folder& folder, HashResult* hash) {
  TableHost host(num_workers);
  LocalClient client(host, 0, 1);
  Train(ClientsOf(client));
  *hash = *client.Hash().Wait(Deadline());
  const auto files = client.Save(2, folder.path(), Deadline()).Wait(Deadline());
  EXPECT_TRUE(files.ok()) << files.status();
  for (const SavedFile& file : *files) {
    EXPECT_TRUE(CheckFile(folder.path() + "/" + file.name(), {file.bytes(), file.crc32c()}).ok())
        << file.name();
  }
  return Paths(folder.path(), *files);
}

class RowFilesTest : public testing::TestWithParam<int> {};

TEST_P(RowFilesTest, AnyNumberOfWorkersSavesTheSameRows) {
  const Folder folder, reference_folder;
  HashResult hash, reference_hash;
  const auto reference = ReadAll(SaveLocal(1, reference_folder, &reference_hash));
  const auto paths = SaveLocal(GetParam(), folder, &hash);
  EXPECT_EQ(paths.size(), 2 * static_cast<size_t>(GetParam()))
      << "a file for each worker and table";
  const RecordMap records = ReadAll(paths);
  EXPECT_EQ(records.size(), hash.num_rows) << "committed rows, and no others";
  ExpectSame(records, reference);
}

TEST_P(RowFilesTest, ServersWriteOneSetOfFilesTogether) {
  const Folder folder, reference_folder;
  HashResult hash;
  const auto reference = ReadAll(SaveLocal(1, reference_folder, &hash));
  PsCluster cluster(GetParam(), 2);
  const auto client = cluster.MakeClient(0, 1, {absl::Seconds(30), 1 << 12});
  Train(ClientsOf(*client));
  const auto files = client->Save(2, folder.path(), Deadline()).Wait(Deadline());
  ASSERT_TRUE(files.ok()) << files.status();
  ExpectSame(ReadAll(Paths(folder.path(), *files)), reference);
}

INSTANTIATE_TEST_SUITE_P(Numbers, RowFilesTest, testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(RemoteSaveTest, HasItsCallersDeadlineNotThatOfOtherCalls) {
  PsCluster cluster(1, 1);
  const Folder folder;
  const auto client = cluster.MakeClient(0, 1, {absl::Seconds(30), 1 << 20});
  Train(ClientsOf(*client));
  const absl::Status status =
      client->Save(2, folder.path(), absl::Now() - absl::Seconds(1)).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

class SaveTest : public testing::TestWithParam<bool> {
 protected:
  ClientStack MakeClient() {
    if (GetParam()) return cluster_.MakeClient(0, 1, {absl::Seconds(30), 1 << 20});
    return std::make_unique<LocalClient>(host_, 0, 1);
  }
  PsCluster cluster_{1, 1};
  TableHost host_{1};
  const Folder folder_;
};

TEST_P(SaveTest, AnotherStepThanTheLastAppliedIsRefused) {
  const auto client = MakeClient();
  Train(client);
  for (uint64_t step : {1, 3}) {
    const absl::Status status =
        client.tables->Save(step, folder_.path(), Deadline()).Wait(Deadline()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_P(SaveTest, FolderThatServersDoNotSeeIsNamed) {
  const auto client = MakeClient();
  Train(client);
  const absl::Status status =
      client.tables->Save(2, folder_.path() + "/nowhere", Deadline()).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("nowhere/table-table1-"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("share a file system"), absl::string_view::npos) << status;
}

TEST_P(SaveTest, PendingGradientsAndFreshRowsAreNotSaved) {
  const auto client = MakeClient();
  Train(client);
  const auto before = client.tables->Hash().Wait(Deadline());
  const std::vector<uint64_t> ids{424242};
  std::vector<float> row(5), gradient(5, 1);
  ASSERT_TRUE(client.rows->Pull(3, true, {{1, ids, row.data()}}).Wait(Deadline()).ok());
  ASSERT_TRUE(client.rows->Push(3, 0, {{1, ids, gradient.data()}}).Wait(Deadline()).ok());
  const auto files = client.tables->Save(2, folder_.path(), Deadline()).Wait(Deadline());
  ASSERT_TRUE(files.ok()) << files.status();
  const RecordMap records = ReadAll(Paths(folder_.path(), *files));
  EXPECT_EQ(records.size(), before->num_rows);
  EXPECT_EQ(records.count({1, 424242}), 0u);
}

TEST_P(SaveTest, TablesWithoutCommittedRowsHaveNoFile) {
  const auto client = MakeClient();
  ASSERT_TRUE(client.tables->CreateTables(Specs(), absl::Seconds(30)).ok());
  const auto files = client.tables->Save(0, folder_.path(), Deadline()).Wait(Deadline());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(files->empty());
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

INSTANTIATE_TEST_SUITE_P(Both, SaveTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Remote" : "Local"; });

// A table with one row, as a file.
class RowFileTest : public testing::Test {
 protected:
  RowFileTest() {
    TableSpec spec = MakeTableSpec(7, 2, SPARSE_ADAGRAD);
    spec.set_name("a/b ä");
    table_ = std::make_unique<Table>(spec);
    const float values[] = {1, 2, 3, 4};
    EXPECT_TRUE(table_->Restore({.id = 9, .last_step = 5, .frequency = 6, .version = 3, .flags = 0},
                                reinterpret_cast<const char*>(values)));
    const auto file = SaveRows(*table_, folder_.path());
    EXPECT_TRUE(file.ok() && file->has_value()) << file.status();
    name_ = (*file)->name();
    std::ifstream stream(Path(), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
  }
  std::string Path() const { return folder_.path() + "/" + name_; }
  absl::Status Read(const std::string& bytes, bool wanted = true) {
    std::ofstream(Path(), std::ios::binary | std::ios::trunc) << bytes;
    return ReadRows(
        Path(), [](const RowFileHeader&) { return absl::OkStatus(); },
        [wanted](uint32_t) { return wanted; },
        [wanted](const SavedRow&) {
          EXPECT_TRUE(wanted) << "a row of a shard that nobody wants";
          return absl::OkStatus();
        });
  }
  // Returns the file's bytes with `value` at `offset`.
  template <class T>
  std::string With(size_t offset, T value) const {
    std::string bytes = bytes_;
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    return bytes;
  }
  void ExpectRefused(const std::string& bytes, const char* word) {
    const absl::Status status = Read(bytes);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(name_), absl::string_view::npos) << status;
  }

  const Folder folder_;
  std::unique_ptr<Table> table_;
  std::string name_, bytes_;
};

TEST_F(RowFileTest, LayoutIsAsDescribed) {
  const uint32_t shard = rpc::VirtualShard(7, 9);
  char number[8];
  std::snprintf(number, sizeof number, "%04u", shard);
  EXPECT_EQ(name_, std::string("table-a%2fb%20%c3%a4-") + number + ".rows");
  std::string expected = "TNDMROWS";
  const auto append = [&expected](auto... values) {
    (expected.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  };
  append(uint32_t{2}, kRowLayoutVersion, uint32_t{7}, uint32_t{2}, uint32_t{0}, uint32_t{2},
         uint32_t{1024}, uint32_t{1}, uint32_t{6}, uint32_t{0}, uint64_t{1});
  expected += "a/b ä";
  append(shard, uint32_t{0}, uint64_t{1});
  append(uint64_t{9}, uint32_t{5}, uint32_t{6}, uint32_t{3}, uint32_t{0}, 1.0f, 2.0f, 3.0f, 4.0f);
  EXPECT_EQ(bytes_, expected);
}

TEST_F(RowFileTest, EveryTruncationAndEveryTailIsRefused) {
  for (bool wanted : {true, false}) {
    EXPECT_TRUE(Read(bytes_, wanted).ok());
    for (size_t size = 0; size < bytes_.size(); ++size) {
      EXPECT_TRUE(absl::IsFailedPrecondition(Read(bytes_.substr(0, size), wanted))) << size;
    }
  }
  ExpectRefused(bytes_ + "x", "goes on");
}

TEST_F(RowFileTest, HostileFieldsAreRefused) {
  const size_t shard = 56 + 6, row = shard + 16;
  ExpectRefused(With(0, 'X'), "not a file of table rows");
  ExpectRefused(With(8, uint32_t{3}), "has format 3");
  ExpectRefused(With(12, uint32_t{9}), "row layout 9");
  ExpectRefused(With(20, ~uint32_t{0}), "claims dim");
  ExpectRefused(With(20, uint32_t{65536}), "ends too early");
  ExpectRefused(With(24, uint32_t{3}), "storage 3");
  ExpectRefused(With(28, ~uint32_t{0}), "slot values");
  // A number of 40-byte rows whose product overflows to the size of one row.
  std::string many = With(48, uint64_t{1} << 61 | 1);
  std::memcpy(many.data() + shard + 8, many.data() + 48, 8);
  EXPECT_TRUE(absl::IsFailedPrecondition(Read(many, /*wanted=*/false)));
  ExpectRefused(With(32, uint32_t{512}), "512 virtual shards");
  ExpectRefused(With(36, ~uint32_t{0}), "ends too early");
  ExpectRefused(With(40, ~uint32_t{0}), "claims dim");
  ExpectRefused(With(40, uint32_t{4096}), "ends too early");
  ExpectRefused(With(44, uint32_t{1}), "claims dim");
  ExpectRefused(With(48, ~uint64_t{0}), "fewer rows");
  ExpectRefused(With(48, uint64_t{0}), "more rows");
  ExpectRefused(With(shard, uint32_t{1024}), "out of order");
  ExpectRefused(With(shard, rpc::VirtualShard(7, 9) ^ 1), "out of its place");
  for (uint32_t bytes : {1u, 8u, 48u, 57u})
    ExpectRefused(With(shard + 4, bytes), "bytes of de-duplication windows");
  ExpectRefused(With(shard + 4, uint32_t{56}), "ends too early");
  EXPECT_TRUE(absl::IsFailedPrecondition(Read(With(shard + 4, ~uint32_t{0}), /*wanted=*/false)));
  ExpectRefused(With(shard + 8, ~uint64_t{0}), "more rows");
  ExpectRefused(With(row, uint64_t{0}), "out of its place");
  std::string twice = With(48, uint64_t{2});
  twice[shard + 8] = 2;
  ExpectRefused(twice + twice.substr(row), "row 9 out of its place");
}

// A shard with a row and one without, and windows of two trainers.
class WindowFileTest : public RowFileTest {
 protected:
  WindowFileTest() {
    PushWindow::Bits applied;
    for (size_t i : {0, 1, 64, 199}) applied.set(i);
    windows_ = {{first_, 0, 1, PushWindow(200, applied)},
                {first_, 3, 2, PushWindow(1, 1)},
                {second_, 1, 1, PushWindow(7, 5)}};
    const auto file = SaveRows(*table_, folder_.path(), {kEpoch, windows_});
    EXPECT_TRUE(file.ok() && file->has_value()) << file.status();
    name_ = (*file)->name();
    std::ifstream stream(Path(), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
  }
  absl::StatusOr<std::vector<ShardWindow>> ReadWindows(const std::string& bytes) {
    std::ofstream(Path(), std::ios::binary | std::ios::trunc) << bytes;
    std::vector<ShardWindow> windows;
    const absl::Status status = ReadRows(
        Path(), [](const RowFileHeader&) { return absl::OkStatus(); },
        [](uint32_t) { return true; }, [](const SavedRow&) { return absl::OkStatus(); },
        [&](uint64_t job_epoch, const ShardWindow& window) {
          EXPECT_EQ(job_epoch, kEpoch);
          windows.push_back(window);
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return windows;
  }

  static constexpr uint64_t kEpoch = 0x0123456789abcdef;
  static constexpr size_t kShard = 56 + 6, kWindow = kShard + 16 + 8;  // offsets of the first
  // The row's shard and the one beside it.
  const uint32_t first_ = std::min(rpc::VirtualShard(7, 9), rpc::VirtualShard(7, 9) ^ 1),
                 second_ = first_ + 1;
  std::vector<ShardWindow> windows_;
};

TEST_F(WindowFileTest, WindowsLieBeforeTheRowsOfTheirShard) {
  std::string expected;
  const auto append = [&expected](auto... values) {
    (expected.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  };
  const bool row_first = rpc::VirtualShard(7, 9) == first_;
  const auto append_row = [&] {
    append(uint64_t{9}, uint32_t{5}, uint32_t{6}, uint32_t{3}, uint32_t{0}, 1.0f, 2.0f, 3.0f, 4.0f);
  };
  append(first_, uint32_t{8 + 2 * 48}, uint64_t{row_first}, kEpoch);
  append(uint32_t{0}, uint32_t{1}, uint64_t{200}, uint64_t{3}, uint64_t{1}, uint64_t{0},
         uint64_t{1} << 7);
  append(uint32_t{3}, uint32_t{2}, uint64_t{1}, uint64_t{1}, uint64_t{0}, uint64_t{0}, uint64_t{0});
  if (row_first) append_row();
  append(second_, uint32_t{8 + 48}, uint64_t{!row_first}, kEpoch);
  append(uint32_t{1}, uint32_t{1}, uint64_t{7}, uint64_t{5}, uint64_t{0}, uint64_t{0}, uint64_t{0});
  if (!row_first) append_row();
  EXPECT_EQ(bytes_.substr(kShard), expected);
}

TEST_F(WindowFileTest, WhatWasWrittenIsRead) {
  const auto read = ReadWindows(bytes_);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), windows_.size());
  for (size_t i = 0; i < windows_.size(); ++i) {
    EXPECT_EQ((*read)[i].shard, windows_[i].shard);
    EXPECT_EQ((*read)[i].trainer, windows_[i].trainer);
    EXPECT_EQ((*read)[i].incarnation, windows_[i].incarnation);
    EXPECT_EQ((*read)[i].window.highest(), windows_[i].window.highest());
    EXPECT_EQ((*read)[i].window.applied(), windows_[i].window.applied());
  }
}

TEST_F(WindowFileTest, EveryTruncationIsRefused) {
  for (bool wanted : {true, false}) {
    EXPECT_TRUE(Read(bytes_, wanted).ok());
    for (size_t size = 0; size < bytes_.size(); ++size) {
      EXPECT_TRUE(absl::IsFailedPrecondition(Read(bytes_.substr(0, size), wanted))) << size;
    }
  }
}

TEST_F(WindowFileTest, HostileWindowsAreRefused) {
  ExpectRefused(With(kWindow + 48, uint32_t{0}),
                "damaged de-duplication window of trainer 0");  // again
  ExpectRefused(With(kWindow + 8, uint64_t{0}), "damaged");
  ExpectRefused(With(kWindow + 8, uint64_t{1} << 40), "damaged");
  ExpectRefused(With(kWindow + 8, uint64_t{199}),
                "damaged");  // the bitmap says that sequence 0 was applied
  ExpectRefused(With(kWindow + 16, uint64_t{2}), "damaged");  // and here not its highest
  ExpectRefused(With(kShard + 4, uint32_t{8 + 48}), name_.c_str());
  ExpectRefused(With(kShard + 4, uint32_t{8 + 3 * 48}), name_.c_str());
}

TEST_F(RowFileTest, FlippedBitsNeverCrashTheReader) {
  for (size_t bit = 0; bit < bytes_.size() * 8; ++bit) {
    std::string damaged = bytes_;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    Read(damaged).IgnoreError();  // values may pass: the checksum, not this reader, protects them
  }
}

TEST_F(RowFileTest, MissingFileAndFolderAreRefused) {
  fs::remove(Path());
  const auto begin = [](const RowFileHeader&) { return absl::OkStatus(); };
  const auto wants = [](uint32_t) { return true; };
  const auto visit = [](const SavedRow&) { return absl::OkStatus(); };
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadRows(Path(), begin, wants, visit)));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadRows(folder_.path(), begin, wants, visit)));
}

// A row with an infinite weight in each storage, and one with an infinite optimizer slot.
TEST(NonFiniteRowTest, IsNotSaved) {
  const auto spec = [](int optimizer, RowStorage storage) {
    TableSpec made = MakeTableSpec(1, 5, optimizer);
    made.set_storage(storage);
    return made;
  };
  for (const TableSpec& of :
       {spec(SPARSE_SGD, STORED_F32), spec(SPARSE_SGD, STORED_BF16), spec(SPARSE_SGD, STORED_INT8),
        spec(SPARSE_ADAM, STORED_F32), spec(SPARSE_ADAM, STORED_BF16)}) {
    SCOPED_TRACE(of.ShortDebugString());
    TableHost host(2);
    LocalClient client(host, 0, 1);
    ASSERT_TRUE(client.CreateTables({of}, absl::Seconds(30)).ok());
    const std::vector<uint64_t> ids{7, 8};
    std::vector<float> gradients(10, 1);
    gradients[9] = 1e30f;
    ASSERT_TRUE(client.Push(1, 0, {{1, ids, gradients.data()}}).Wait(Deadline()).ok());
    ASSERT_TRUE(client.Commit({1, {{1, of.optimizer() == SPARSE_SGD ? 1e30 : 0.1}}, 1, false})
                    .Wait(Deadline())
                    .ok());
    const Folder folder;
    const auto saved = client.Save(1, folder.path(), Deadline()).Wait(Deadline());
    EXPECT_TRUE(absl::IsOutOfRange(saved.status())) << saved.status();
    EXPECT_NE(saved.status().message().find(absl::StrCat("table ", of.name(), ": row 8 ")),
              absl::string_view::npos)
        << saved.status();
  }
}

TEST(NonFiniteRowTest, OfAnOlderVersionsFileIsNotLoaded) {
  for (const RowStorage storage : {STORED_F32, STORED_BF16, STORED_INT8}) {
    TableSpec spec = MakeTableSpec(1, 5, SPARSE_SGD);  // without slots: a row ends with its weights
    spec.set_storage(storage);
    TableHost host(1);
    LocalClient client(host, 0, 1);
    ASSERT_TRUE(client.CreateTables({spec}, absl::Seconds(30)).ok());
    const std::vector<uint64_t> ids{7};
    const std::vector<float> gradients(5, 1);
    ASSERT_TRUE(client.Push(1, 0, {{1, ids, gradients.data()}}).Wait(Deadline()).ok());
    ASSERT_TRUE(client.Commit({1, {{1, 0.1}}, 1, false}).Wait(Deadline()).ok());
    const Folder folder;
    const auto saved = client.Save(1, folder.path(), Deadline()).Wait(Deadline());
    ASSERT_TRUE(saved.ok()) << saved.status();
    const std::string path = Paths(folder.path(), *saved)[0];
    const size_t bytes = RowLayout(5, storage, 0).value_bytes(),
                 last = storage == STORED_BF16 ? 8 : bytes - sizeof(float);
    const float nan = std::nanf("");
    const uint16_t half = 0x7fc0;
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(fs::file_size(path) - bytes + last));
    if (storage == STORED_BF16)
      file.write(reinterpret_cast<const char*>(&half), sizeof half);
    else
      file.write(reinterpret_cast<const char*>(&nan), sizeof nan);
    file.close();
    TableHost other_host(1);
    LocalClient other(other_host, 0, 1);
    ASSERT_TRUE(other.CreateTables({spec}, absl::Seconds(30)).ok());
    const absl::Status loaded =
        other.Load(1, folder.path(), {(*saved)[0].name()}, Deadline()).Wait(Deadline()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(loaded)) << loaded;
    EXPECT_NE(loaded.message().find("row 7 has a weight or optimizer state that is not finite"),
              absl::string_view::npos)
        << loaded;
  }
}

}  // namespace
}  // namespace tandem::ps
