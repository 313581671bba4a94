// TensorBoard's event file: events.out.tfevents.SECONDS.tandem, with one scalar per record.
// Source of the format: TensorFlow's core/lib/io/record_writer.h (a record is its length, the
// length's checksum, its bytes and their checksum) and core/util/event.proto, core/framework/
// summary.proto (the bytes are an Event, whose fields this file encodes by hand). A checksum is
// CRC-32C, masked as core/lib/hash/crc32c.h says.
// Thread rule: one thread.
// Invariant: the file begins with a record of the version "brain.Event:2".
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::report {

// Every event file's name begins so. TensorBoard needs the part "tfevents".
inline constexpr char kEventFilePrefix[] = "events.out.tfevents.";

// The name of a file that begins `seconds` after 1970. Names sort by their time, which is the order
// in which TensorBoard reads the files of a folder.
std::string EventFileName(int64_t seconds);

class EventFile {
 public:
  // Replaces a file of the same name. Every error of this class is ResourceExhausted and names the
  // file.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder,
                                                           int64_t seconds);

  // `time` is in seconds since 1970. TensorBoard groups tags by the part before the first "/".
  // Rounds `value` to float. NaN and infinities are written; TensorBoard shows them.
  absl::Status AddScalar(int64_t step, double time, std::string_view tag, double value);
  // Says that the run went on and takes step `step` next. Readers drop what older files of the
  // folder hold of `step` and later, because those steps are about to be repeated.
  absl::Status AddRestart(int64_t step, double time);
  // Hands all records to the system. REQUIRES: called before the end; the destructor reports
  // nothing.
  absl::Status Flush();

  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  EventFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  absl::Status AddRecord(std::string_view event);

  const std::string path_;
  const std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tandem::report
