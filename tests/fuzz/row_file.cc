#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "ps/server/checkpoint.h"
#include "ps/server/table_files.h"
#include "ps/store/table.h"
#include "tests/fuzz/memory_use.h"
#include "tests/fuzz/target.h"
#include "tests/ps/push_and_commit.h"
#include "tests/ps/spec.h"

namespace tandem::fuzz {
namespace {

constexpr uint64_t kJob = 7, kStep = 9;

// A file of bytes in memory.
class FileInMemory {
 public:
  explicit FileInMemory(std::string_view bytes) : file_(memfd_create("rows", MFD_CLOEXEC)) {
    TANDEM_CHECK_GE(file_, 0);
    TANDEM_CHECK_EQ(write(file_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  ~FileInMemory() { close(file_); }
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;

  std::string folder() const { return "/proc/self/fd"; }
  std::string name() const { return std::to_string(file_); }

 private:
  const int file_;
};

ps::TableMap Tables() {
  std::vector<TableSpec> specs = {ps::MakeTableSpec(1, 3), ps::MakeTableSpec(2, 2, SPARSE_ADAM)};
  specs[1].set_storage(STORED_INT8);
  ps::TableMap tables;
  for (const TableSpec& spec : specs) tables[spec.number()] = std::make_unique<ps::Table>(spec);
  return tables;
}

void Run(std::string_view bytes) {
  const FileInMemory file(bytes);
  // Reads rows of any table.
  size_t value_bytes = 0, sum = 0;
  const auto begin = [&](const ps::RowFileHeader& header) {
    value_bytes = ps::RowLayout(header.dim, header.storage, header.num_slot_values).value_bytes();
    return absl::OkStatus();
  };
  const auto visit = [&](const ps::SavedRow& row) {
    for (size_t i = 0; i < value_bytes; ++i) sum += static_cast<unsigned char>(row.values[i]);
    return absl::OkStatus();
  };
  const std::string path = file.folder() + "/" + file.name();
  // The reader holds one whole row, whose width the file chooses.
  constexpr size_t kWidestRow = size_t{4} << 20;
  Within(
      bytes.size(), kOtherFactor,
      [&] {
        return ps::ReadRows(
            path, begin, [](uint32_t shard) { return shard % 4 != 1; }, visit);
      },
      kWidestRow)
      .IgnoreError();
  TANDEM_CHECK_LE(sum, bytes.size() * 255);

  const ps::TableMap tables = Tables();
  ps::LoadArgs args{.step = kStep,
                    .folder = file.folder(),
                    .files = {file.name()},
                    .shards = {},
                    .job_epoch = kJob};
  args.shards.emplace_back().set_count(1024);
  auto loaded = Within(bytes.size(), kOtherFactor,
                       [&] { return ps::LoadTables(tables, args, [](uint32_t) { return true; }); });
  if (!loaded.ok()) return;
  for (auto& [number, table] : loaded->tables) table->Hash();
}

std::vector<std::string> Seeds() {
  const ps::TableMap tables = Tables();
  for (const auto& [number, table] : tables) {
    const std::vector<uint64_t> ids = ps::MakeIds(number, 5);
    ps::PushAndCommit(*table, kStep, 0.5, ids,
                      ps::MakeValues(number, ids.size() * table->spec().dim()).data());
  }
  std::string folder = (std::filesystem::temp_directory_path() / "tandem_fuzz_XXXXXX").string();
  TANDEM_CHECK(mkdtemp(folder.data()) != nullptr);
  const ps::PushWindow window(1, ps::PushWindow::Bits(1));
  const ps::SavedWindows windows{kJob, {{17, 0, 1, window}, {17, 1, 1, window}}};
  const auto files = ps::SaveTables(tables, windows, folder, [](uint32_t) { return true; });
  TANDEM_CHECK(files.ok()) << files.status();
  std::vector<std::string> seeds;
  for (const SavedFile& file : *files) {
    std::ifstream in(folder + "/" + file.name(), std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::filesystem::remove_all(folder);
  return seeds;
}

}  // namespace

Target RowFile() { return {"row_file", Run, Seeds}; }

}  // namespace tandem::fuzz
