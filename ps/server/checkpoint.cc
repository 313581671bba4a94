#include "ps/server/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/status_macros.h"
#include "ps/store/table.h"
#include "ps/wire/value_guard.h"
#include "rpc/master/shard_map.h"

namespace tandem::ps {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and written as memory is");

constexpr char kMagic[8] = {'T', 'N', 'D', 'M', 'R', 'O', 'W', 'S'};
constexpr uint32_t kRowFileVersion = 2;
constexpr uint32_t kMaxNameBytes = 4096, kMaxDim = 65536, kMaxSlots = 16;
constexpr size_t kReadAheadBytes = size_t{1} << 18;

struct FixedHeader {
  char magic[8];
  uint32_t format_version, layout_version, number, dim, storage, num_slot_values,
      num_virtual_shards, num_shards, name_bytes, zero;
  uint64_t num_rows;
};
static_assert(sizeof(FixedHeader) == 56);

struct ShardHeader {
  uint32_t shard, window_bytes;
  uint64_t num_rows;
};
static_assert(sizeof(ShardHeader) == 16);

struct WindowRecord {
  uint32_t trainer, incarnation;
  uint64_t highest;
  uint64_t applied[PushWindow::kSize / 64];
};
static_assert(sizeof(WindowRecord) == 48);

WindowRecord ToRecord(const ShardWindow& from) {
  WindowRecord record{from.trainer, from.incarnation, from.window.highest(), {}};
  for (size_t i = 0; i < PushWindow::kSize; ++i) {
    record.applied[i / 64] |= uint64_t{from.window.applied().test(i)} << i % 64;
  }
  return record;
}

PushWindow::Bits AppliedOf(const WindowRecord& record) {
  PushWindow::Bits applied;
  for (size_t i = 0; i < PushWindow::kSize; ++i)
    applied.set(i, record.applied[i / 64] >> i % 64 & 1);
  return applied;
}

// Escapes a table's name for a file name: other characters could make it a path.
std::string FileNameOf(const std::string& table_name, uint32_t first_shard) {
  std::string name;
  for (const unsigned char c : table_name) {
    if (absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.')
      name += static_cast<char>(c);
    else
      absl::StrAppendFormat(&name, "%%%02x", c);
  }
  return absl::StrFormat("table-%s-%04d.rows", name, first_shard);
}

// The saved contents of one virtual shard.
struct ShardContents {
  std::vector<const RowHeader*> rows;  // committed rows, ascending by id
  std::vector<const ShardWindow*> windows;

  bool empty() const { return rows.empty() && windows.empty(); }
};

std::vector<ShardContents> SortContents(const Table& table, const SavedWindows& windows) {
  std::vector<ShardContents> shards(rpc::kNumVirtualShards);
  table.ForEachRow([&](const RowView& row) {
    if (row.header->version == 0) return;
    shards[rpc::VirtualShard(table.spec().number(), row.header->id)].rows.push_back(row.header);
  });
  for (ShardContents& shard : shards) {
    std::sort(shard.rows.begin(), shard.rows.end(),
              [](const RowHeader* a, const RowHeader* b) { return a->id < b->id; });
  }
  for (const ShardWindow& window : windows.windows) shards[window.shard].windows.push_back(&window);
  return shards;
}

void AppendHeader(const Table& table, const std::vector<ShardContents>& shards,
                  FileWriter& writer) {
  const TableSpec& spec = table.spec();
  FixedHeader header{.magic = {},
                     .format_version = kRowFileVersion,
                     .layout_version = kRowLayoutVersion,
                     .number = spec.number(),
                     .dim = spec.dim(),
                     .storage = static_cast<uint32_t>(spec.storage()),
                     .num_slot_values = static_cast<uint32_t>(table.layout().num_slot_values()),
                     .num_virtual_shards = rpc::kNumVirtualShards,
                     .num_shards = 0,
                     .name_bytes = static_cast<uint32_t>(spec.name().size()),
                     .zero = 0,
                     .num_rows = 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  for (const ShardContents& shard : shards) {
    header.num_shards += !shard.empty();
    header.num_rows += shard.rows.size();
  }
  writer.Append(&header, sizeof header);
  writer.Append(spec.name().data(), spec.name().size());
}

void AppendWindows(uint64_t job_epoch, const std::vector<const ShardWindow*>& windows,
                   FileWriter& writer) {
  if (!windows.empty()) writer.Append(&job_epoch, sizeof job_epoch);
  for (const ShardWindow* window : windows) {
    const WindowRecord record = ToRecord(*window);
    writer.Append(&record, sizeof record);
  }
}

}  // namespace

absl::StatusOr<std::optional<SavedFile>> SaveRows(const Table& table, const std::string& folder,
                                                  const SavedWindows& windows) {
  const std::vector<ShardContents> shards = SortContents(table, windows);
  const auto first = std::find_if(shards.begin(), shards.end(),
                                  [](const ShardContents& shard) { return !shard.empty(); });
  if (first == shards.end()) return std::nullopt;
  SavedFile saved;
  saved.set_name(FileNameOf(table.spec().name(), static_cast<uint32_t>(first - shards.begin())));
  FileWriter writer(folder + "/" + saved.name());
  AppendHeader(table, shards, writer);
  const size_t value_bytes = table.layout().value_bytes();
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const ShardContents& contents = shards[shard];
    if (contents.empty()) continue;
    const size_t window_bytes =
        contents.windows.empty()
            ? 0
            : sizeof(uint64_t) + contents.windows.size() * sizeof(WindowRecord);
    const ShardHeader header{static_cast<uint32_t>(shard), static_cast<uint32_t>(window_bytes),
                             contents.rows.size()};
    writer.Append(&header, sizeof header);
    AppendWindows(windows.job_epoch, contents.windows, writer);
    for (const RowHeader* row : contents.rows) {
      const char* const values =
          reinterpret_cast<const char*>(row) + table.layout().weights_offset();
      if (!AllFinite(table.layout(), values)) {
        return absl::OutOfRangeError(
            absl::StrCat("table ", table.spec().name(), ": row ", row->id, " ", kNotFinite));
      }
      writer.Append(row, sizeof *row);
      writer.Append(values, value_bytes);
    }
  }
  const auto digest = writer.Finish();
  if (!digest.ok()) {
    return absl::Status(digest.status().code(),
                        absl::StrCat(digest.status().message(),
                                     " (trainers and servers must share a file system)"));
  }
  saved.set_bytes(digest->num_bytes);
  saved.set_crc32c(digest->crc32c);
  return saved;
}

namespace {

// Reads a file and counts the bytes left, so that no count in the file is trusted beyond the file's
// end.
class RowFile {
 public:
  explicit RowFile(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "rb"), std::fclose) {
    std::error_code error;
    // Rows are small, so reads are buffered.
    if (file_ != nullptr) std::setvbuf(file_.get(), nullptr, _IOFBF, kReadAheadBytes);
    if (file_ != nullptr) left_ = std::filesystem::file_size(path, error);
    if (error) file_.reset();
  }

  template <class... Text>
  absl::Status Wrong(const Text&... text) const {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": ", text...));
  }
  uint64_t left() const { return left_; }

  absl::Status Read(void* target, size_t size) {
    if (file_ == nullptr) return Wrong("cannot be read: ", std::strerror(errno));
    if (size > left_) return Wrong("ends too early");
    if (std::fread(target, 1, size, file_.get()) != size) return Wrong("cannot be read to its end");
    left_ -= size;
    return absl::OkStatus();
  }

  absl::Status Skip(uint64_t size) {
    if (size > left_) return Wrong("ends too early");
    if (fseeko(file_.get(), static_cast<off_t>(size), SEEK_CUR) != 0)
      return Wrong("cannot be read to its end");
    left_ -= size;
    return absl::OkStatus();
  }

  absl::StatusOr<RowFileHeader> ReadHeader();
  // Reads the windows and rows of one shard and returns its number.
  // REQUIRES: `previous` is the shard read before, or -1 at the start.
  absl::StatusOr<int64_t> ReadShard(const RowFileHeader& header, int64_t previous,
                                    uint64_t* rows_left, absl::FunctionRef<bool(uint32_t)> wants,
                                    absl::FunctionRef<absl::Status(const SavedRow&)> visit,
                                    VisitWindow visit_window);

 private:
  absl::Status ReadWindows(const ShardHeader& shard, VisitWindow visit);

  const std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  uint64_t left_ = 0;
  std::vector<char> values_;
};

absl::StatusOr<RowFileHeader> RowFile::ReadHeader() {
  FixedHeader fixed;
  RETURN_IF_ERROR(Read(&fixed, sizeof fixed));
  if (std::memcmp(fixed.magic, kMagic, sizeof kMagic) != 0)
    return Wrong("is not a file of table rows");
  if (fixed.format_version != kRowFileVersion || fixed.layout_version != kRowLayoutVersion) {
    return Wrong("has format ", fixed.format_version, " and row layout ", fixed.layout_version,
                 "; this tandem reads ", kRowFileVersion, " and ", kRowLayoutVersion);
  }
  if (fixed.num_virtual_shards != rpc::kNumVirtualShards) {
    return Wrong("has ", fixed.num_virtual_shards, " virtual shards, must be ",
                 rpc::kNumVirtualShards);
  }
  if (fixed.dim == 0 || fixed.dim > kMaxDim ||
      !RowStorage_IsValid(static_cast<int>(fixed.storage)) ||
      fixed.num_slot_values > uint64_t{kMaxSlots} * fixed.dim || fixed.name_bytes > kMaxNameBytes ||
      fixed.zero != 0) {
    return Wrong("claims dim ", fixed.dim, ", storage ", fixed.storage, ", ", fixed.num_slot_values,
                 " slot values and a name of ", fixed.name_bytes, " bytes");
  }
  RowFileHeader header{.table = std::string(std::min<uint64_t>(fixed.name_bytes, left_), '\0'),
                       .number = fixed.number,
                       .dim = fixed.dim,
                       .num_slot_values = fixed.num_slot_values,
                       .num_shards = fixed.num_shards,
                       .storage = static_cast<RowStorage>(fixed.storage),
                       .num_rows = fixed.num_rows};
  RETURN_IF_ERROR(Read(header.table.data(), fixed.name_bytes));
  return header;
}

absl::Status RowFile::ReadWindows(const ShardHeader& shard, VisitWindow visit) {
  if (shard.window_bytes == 0) return absl::OkStatus();
  uint64_t job_epoch = 0;
  const size_t num_windows = shard.window_bytes / sizeof(WindowRecord);
  if (num_windows == 0 ||
      shard.window_bytes != sizeof job_epoch + num_windows * sizeof(WindowRecord)) {
    return Wrong("has ", shard.window_bytes, " bytes of de-duplication windows in virtual shard ",
                 shard.shard);
  }
  RETURN_IF_ERROR(Read(&job_epoch, sizeof job_epoch));
  int64_t previous = -1;
  for (size_t i = 0; i < num_windows; ++i) {
    WindowRecord record;
    RETURN_IF_ERROR(Read(&record, sizeof record));
    const PushWindow::Bits applied = AppliedOf(record);
    if (record.trainer <= previous || !PushWindow::IsWindow(record.highest, applied)) {
      return Wrong("has a damaged de-duplication window of trainer ", record.trainer,
                   " in virtual shard ", shard.shard);
    }
    previous = record.trainer;
    RETURN_IF_ERROR(visit(job_epoch, {shard.shard, record.trainer, record.incarnation,
                                      PushWindow(record.highest, applied)}));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RowFile::ReadShard(const RowFileHeader& header, int64_t previous,
                                           uint64_t* rows_left,
                                           absl::FunctionRef<bool(uint32_t)> wants,
                                           absl::FunctionRef<absl::Status(const SavedRow&)> visit,
                                           VisitWindow visit_window) {
  ShardHeader shard;
  RETURN_IF_ERROR(Read(&shard, sizeof shard));
  if (shard.shard >= rpc::kNumVirtualShards || shard.shard <= previous)
    return Wrong("has its shards out of order");
  if (shard.num_rows > *rows_left) return Wrong("has more rows than its header says");
  *rows_left -= shard.num_rows;
  values_.resize(RowLayout(header.dim, header.storage, header.num_slot_values).value_bytes());
  if (!wants(shard.shard)) {
    RETURN_IF_ERROR(Skip(shard.window_bytes));
    const uint64_t row_bytes = sizeof(RowHeader) + values_.size();
    if (shard.num_rows > left_ / row_bytes) return Wrong("ends too early");
    RETURN_IF_ERROR(Skip(shard.num_rows * row_bytes));
    return shard.shard;
  }
  RETURN_IF_ERROR(ReadWindows(shard, visit_window));
  SavedRow row{shard.shard, {}, values_.data()};
  uint64_t last_id = 0;
  for (uint64_t i = 0; i < shard.num_rows; ++i) {
    RETURN_IF_ERROR(Read(&row.header, sizeof row.header));
    RETURN_IF_ERROR(Read(values_.data(), values_.size()));
    if (row.header.id <= last_id ||
        rpc::VirtualShard(header.number, row.header.id) != shard.shard) {
      return Wrong("has row ", row.header.id, " out of its place");
    }
    last_id = row.header.id;
    RETURN_IF_ERROR(visit(row));
  }
  return shard.shard;
}

}  // namespace

absl::Status IgnoreWindow(uint64_t, const ShardWindow&) { return absl::OkStatus(); }

absl::Status ReadRows(const std::string& path,
                      absl::FunctionRef<absl::Status(const RowFileHeader&)> begin,
                      absl::FunctionRef<bool(uint32_t)> wants,
                      absl::FunctionRef<absl::Status(const SavedRow&)> visit,
                      VisitWindow visit_window) {
  RowFile file(path);
  ASSIGN_OR_RETURN(const RowFileHeader header, file.ReadHeader());
  RETURN_IF_ERROR(begin(header));
  uint64_t rows_left = header.num_rows;
  int64_t shard = -1;
  for (uint32_t i = 0; i < header.num_shards; ++i) {
    ASSIGN_OR_RETURN(shard, file.ReadShard(header, shard, &rows_left, wants, visit, visit_window));
  }
  if (rows_left != 0) return file.Wrong("has fewer rows than its header says");
  if (file.left() != 0) return file.Wrong("goes on after its last row");
  return absl::OkStatus();
}

}  // namespace tandem::ps
