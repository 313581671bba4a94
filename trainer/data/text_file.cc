#include "trainer/data/text_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/crc32c.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tandem::data {
namespace {

absl::Status FileError(const std::string& path, std::string_view message) {
  return absl::DataLossError(absl::StrCat(Printable(path), ": ", std::string(message)));
}

// Shortens at a character boundary, and escapes.
std::string Quoted(std::string_view text) {
  size_t shown = std::min<size_t>(text.size(), 40);
  while (shown > 0 && shown < text.size() &&
         (static_cast<unsigned char>(text[shown]) & 0xC0) == 0x80)
    --shown;
  return absl::StrCat("`", Printable(text.substr(0, shown)), text.size() > shown ? "..." : "", "`");
}

bool AllDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // O_NONBLOCK: opening a pipe without a writer must not wait forever. The flag changes nothing for
  // regular files.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return absl::NotFoundError(absl::StrCat(Printable(path), ": No such file"));
    return FileError(path, std::strerror(errno));
  }
  absl::Cleanup close_file = [file] { close(file); };
  struct stat info;
  if (fstat(file, &info) != 0) return FileError(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return FileError(path, "is a directory, expected a text file");
  if (!S_ISREG(info.st_mode)) return FileError(path, "is not a regular file");
  if (info.st_size == 0) return FileError(path, "the file is empty");
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t filled = 0;
  while (filled < content.size()) {
    const ssize_t got = read(file, content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path, std::strerror(errno));
    if (got == 0) return FileError(path, "the file shrank while it was read");
    filled += static_cast<size_t>(got);
  }
  return content;
}

FileDigest DigestOf(std::string_view content) {
  return {content.size(), Crc32c(0, content.data(), content.size())};
}

LineReader::LineReader(const std::string& path, std::string_view content)
    : path_(Printable(path)), rest_(content) {
  if (rest_.substr(0, kByteOrderMark.size()) == kByteOrderMark)
    rest_.remove_prefix(kByteOrderMark.size());
}

absl::StatusOr<bool> LineReader::Next() {
  fields_.clear();
  while (!rest_.empty() && fields_.empty()) {
    ++line_number_;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (line.size() > kMaxLineBytes) return Error("the line is longer than 16 MB");
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (const size_t nul = line.find('\0'); nul != std::string_view::npos) {
      return Error(absl::StrCat("NUL byte at column ", nul + 1, ": is this a text file?"));
    }
    CutFields(line);
    line_ = line;
  }
  return !fields_.empty();
}

void LineReader::CutFields(std::string_view line) {
  size_t at = 0;
  while (true) {
    while (at < line.size() && IsBlank(line[at])) ++at;
    if (at == line.size()) return;
    const size_t begin = at;
    while (at < line.size() && !IsBlank(line[at])) ++at;
    fields_.push_back({line.substr(begin, at - begin), static_cast<int64_t>(begin) + 1});
  }
}

absl::Status LineReader::Error(std::string_view message) const {
  return absl::DataLossError(absl::StrCat(path_, ":", line_number_, ": ", std::string(message)));
}

absl::Status LineReader::Unexpected(std::string_view format, const Field& found) const {
  return Error(absl::StrCat("expected `", std::string(format), "`, found ", Quoted(found.text),
                            " at column ", found.column));
}

absl::Status LineReader::UnexpectedEnd(std::string_view format) const {
  return Error(absl::StrCat("expected `", std::string(format), "`, found the end of the line"));
}

absl::StatusOr<uint64_t> LineReader::ParseId(const Field& field, std::string_view noun,
                                             std::string_view format) const {
  uint64_t id = 0;
  const std::string_view text = field.text;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error == std::errc() && stop == text.data() + text.size()) return id;
  const std::string named =
      absl::StrCat(std::string(noun), " id ", std::string(text.substr(0, 40)));
  if (AllDigits(text))
    return Error(absl::StrCat(named, " does not fit in 64 bits (column ", field.column, ")"));
  if (text[0] == '-' && AllDigits(text.substr(1))) {
    return Error(absl::StrCat(named, " is negative (column ", field.column, ")"));
  }
  return Unexpected(format, field);
}

}  // namespace tandem::data
