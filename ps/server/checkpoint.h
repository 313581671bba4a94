// Rows on disk: one file `table-NAME-SSSS.rows` for each worker and table with rows. SSSS is the
// file's lowest virtual shard, so workers choose distinct names without agreement. Rows that were
// never committed are left out, because they are functions of the table's seed. Rows are sorted by
// (virtual shard, id), so a server can load just its shards of files from any number of servers.
// All numbers are little-endian, without padding. Readers trust nothing: they compare counts with
// the file's size first.
// Thread rule: free functions; a Table belongs to the calling thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/server/push_windows.h"
#include "ps/wire/row_layout.h"

// Format of a file of rows:
//   header  "TNDMROWS", then u32: format version 2, row layout version, table number, dim, storage
//           (RowStorage), slot values of a row, virtual shards (1024), shards in the file, bytes of
//           the table's name, 0; then u64 rows; then the name
//   shard   u32 number, u32 bytes of de-duplication windows, u64 rows; then its windows, its rows
//   windows nothing, or u64 job epoch, then for every trainer with a window, by number:
//           u32 trainer, u32 incarnation, u64 highest sequence,
//           u64[4] bitmap (bit i of word w: sequence highest - 64 w - i was applied)
//   row     u64 id, u32 last_step, frequency, version, flags; the weights as stored (row_codec.h),
//           padded to a multiple of 4 bytes; f32 slots
//
// Windows (ps/server/push_windows.h) belong to a shard, not to a table. A worker writes windows
// once, in its first table's file, which may then have shards without rows.
namespace tandem {
enum RowStorage : int;  // proto/embedding.pb.h
class SavedFile;        // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

class Table;

// Writes the committed rows and `windows` to a file. Returns nothing, and writes no file, if there
// are neither. Memory beside the table: 8 bytes per row. ResourceExhausted names the file.
// OutOfRange names a row with a number that is not finite, because such rows are never saved.
absl::StatusOr<std::optional<SavedFile>> SaveRows(const Table& table, const std::string& folder,
                                                  const SavedWindows& windows = {});

struct RowFileHeader {
  std::string table;
  uint32_t number = 0, dim = 0, num_slot_values = 0, num_shards = 0;
  RowStorage storage{};
  uint64_t num_rows = 0;
};

// One row of the file that is read.
struct SavedRow {
  uint32_t shard = 0;
  RowHeader header;
  const char* values = nullptr;  // [RowLayout::value_bytes()]: weights, then slots
};

// Called for each window of the file. `job_epoch` is that of the job that saved the file.
using VisitWindow = absl::FunctionRef<absl::Status(uint64_t job_epoch, const ShardWindow&)>;
absl::Status IgnoreWindow(uint64_t job_epoch, const ShardWindow& window);

// Calls `begin` once, then, for every virtual shard that `wants` accepts, `visit_window` for its
// windows and `visit` for its rows. Calls come in the file's order until one is not Ok. Other
// shards are skipped unread. Holds one row in memory at a time. FailedPrecondition names the file
// and its defect.
// REQUIRES: the caller has checked the file's checksum.
absl::Status ReadRows(const std::string& path,
                      absl::FunctionRef<absl::Status(const RowFileHeader&)> begin,
                      absl::FunctionRef<bool(uint32_t)> wants,
                      absl::FunctionRef<absl::Status(const SavedRow&)> visit,
                      VisitWindow visit_window = IgnoreWindow);

}  // namespace tandem::ps
