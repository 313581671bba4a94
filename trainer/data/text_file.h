// A whole text file in memory and its lines cut into fields, with the place of each kept for error messages: the bottom
// of every reader in this room. Thread rule: one thread per LineReader.
// Invariant: fields point into the file's bytes; every error names PATH, and PATH:LINE where there is a line.
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

// NotFound where the file does not exist; DataLoss where it is no regular file, cannot be read or is empty.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// What tells two files apart whose names are the same.
FileDigest DigestOf(std::string_view content);

// A run of bytes without blanks. Columns count bytes from 1, as compilers and editors do.
struct Field {
  std::string_view text;
  int64_t column = 0;
};

class LineReader {
 public:
  // REQUIRES: `content` outlives the reader. A UTF-8 byte-order mark at its start is skipped.
  LineReader(const std::string& path, std::string_view content);

  // Cuts the next line that is not blank into fields(); false at the end of the file.
  absl::StatusOr<bool> Next();

  const std::vector<Field>& fields() const { return fields_; }
  int64_t line_number() const { return line_number_; }

  // DataLoss "PATH:LINE: message".
  absl::Status Error(std::string_view message) const;
  // Error of the form "expected `format`, found `text` at column N".
  absl::Status Unexpected(std::string_view format, const Field& found) const;
  // Error of the form "expected `format`, found the end of the line".
  absl::Status UnexpectedEnd(std::string_view format) const;

  // Parses a decimal id. `noun` names it in errors about its sign and size; `format` in all others.
  absl::StatusOr<uint64_t> ParseId(const Field& field, std::string_view noun, std::string_view format) const;

 private:
  void CutFields(std::string_view line);

  std::string path_;
  std::string_view rest_;
  std::vector<Field> fields_;
  int64_t line_number_ = 0;
};

}  // namespace tandem::data
