// A whole text file in memory, cut into lines and fields. Each field keeps its place for error
// messages. All readers of this folder use it.
// Invariant: fields point into the file's bytes; every error names PATH, and PATH:LINE if there is
// a line.
// Thread rule: one thread per LineReader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/checked_file.h"

namespace tandem::data {

inline constexpr size_t kMaxLineBytes = size_t{16} << 20;

// NotFound if the file does not exist. DataLoss if it is not a regular file, cannot be read or is
// empty.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// The digest tells apart two files of the same name.
FileDigest DigestOf(std::string_view content);

// A run of bytes without blanks. Columns count bytes from 1, like compilers and editors.
struct Field {
  std::string_view text;
  int64_t column = 0;
};

class LineReader {
 public:
  // Skips a UTF-8 byte-order mark at the start of `content`.
  // REQUIRES: `content` outlives the reader.
  LineReader(const std::string& path, std::string_view content);

  // Cuts the next line that is not blank into fields(). Returns false at the end of the file.
  absl::StatusOr<bool> Next();

  const std::vector<Field>& fields() const { return fields_; }
  std::string_view line() const { return line_; }  // without its end
  int64_t line_number() const { return line_number_; }

  // Returns DataLoss "PATH:LINE: message".
  absl::Status Error(std::string_view message) const;
  // Returns the error "expected `format`, found `text` at column N".
  absl::Status Unexpected(std::string_view format, const Field& found) const;
  // Returns the error "expected `format`, found the end of the line".
  absl::Status UnexpectedEnd(std::string_view format) const;

  // Parses a decimal id. Errors about its sign and size name it `noun`; all other errors show
  // `format`.
  absl::StatusOr<uint64_t> ParseId(const Field& field, std::string_view noun,
                                   std::string_view format) const;

 private:
  void CutFields(std::string_view line);

  std::string path_;
  std::string_view rest_, line_;
  std::vector<Field> fields_;
  int64_t line_number_ = 0;
};

}  // namespace tandem::data
