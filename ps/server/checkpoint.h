// Rows on disk: one file for each worker and table that has rows, `table-NAME-SSSS.rows`, SSSS being its lowest virtual
// shard, so that names differ without agreement. Rows that were never committed are left out: they are functions of the
// table's seed. Rows lie by (virtual shard, id), so a server can load the shards that it owns, whatever their number was.
//
//   header  "TNDMROWS", then u32: format version 2, row layout version, table number, dim, storage (RowStorage), slot values of a row,
//           virtual shards (1024), shards in the file, bytes of the table's name, 0; then u64 rows; then the name
//   shard   u32 number, u32 bytes of de-duplication windows, u64 rows; then its windows, then its rows
//   windows nothing, or u64 job epoch; then for every trainer with a window, by number: u32 trainer, u32 incarnation, u64 highest
//           sequence, u64[4] bitmap (bit i of word w: sequence highest - 64 w - i was applied)
//   row     u64 id, u32 last_step, frequency, version, flags; the weights as stored (row_codec.h), to a multiple of 4 bytes; f32 slots
//
// Windows (ps/server/push_windows.h) are of a shard, not of a table: a worker writes them once, in its first table's file, which may
// then have shards without rows. Everything is little-endian, without padding. Readers trust nothing: counts are compared with
// the file's size first.
// Thread rule: free functions; a Table belongs to the calling thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/embedding.pb.h"
#include "ps/server/push_windows.h"
#include "ps/wire/row_layout.h"

namespace tandem::ps {

class Table;

// Nothing, and no file, if no row was ever committed and there are no windows. Memory beside the table: 8 bytes per row.
// ResourceExhausted names the file, OutOfRange a row with a number that is not finite: such rows are never saved.
absl::StatusOr<std::optional<SavedFile>> SaveRows(const Table& table, const std::string& folder,
                                                  const SavedWindows& windows = {});

struct RowFileHeader {
  std::string table;
  uint32_t number = 0, dim = 0, num_slot_values = 0, num_shards = 0;
  RowStorage storage = STORED_F32;
  uint64_t num_rows = 0;
};

// A row of the file that is being read.
struct SavedRow {
  uint32_t shard = 0;
  RowHeader header;
  const char* values = nullptr;  // [RowLayout::value_bytes()]: weights, then slots
};

// What is done with a window of the file; the job epoch is that of the job that saved it.
using VisitWindow = absl::FunctionRef<absl::Status(uint64_t job_epoch, const ShardWindow&)>;
absl::Status IgnoreWindow(uint64_t job_epoch, const ShardWindow& window);

// Calls `begin` once, then for every virtual shard that `wants` says yes to `visit_window` for its windows and `visit` for its
// rows, in the file's order, until one is not Ok. Other shards are skipped unread. One row in memory at a time.
// FailedPrecondition names the file and what is wrong with it. The caller has checked the checksum.
absl::Status ReadRows(const std::string& path, absl::FunctionRef<absl::Status(const RowFileHeader&)> begin,
                      absl::FunctionRef<bool(uint32_t)> wants, absl::FunctionRef<absl::Status(const SavedRow&)> visit,
                      VisitWindow visit_window = IgnoreWindow);

}  // namespace tandem::ps
