#include "trainer/job/job_config.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <map>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "proto/job.pb.h"
#include "trainer/job/job_rules.h"
#include "trainer/job/number_text.h"
#include "trainer/job/text_reader.h"

namespace tandem {
namespace {

absl::StatusOr<std::string> ReadJobFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("job file ", path, ": is a directory"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return absl::InvalidArgumentError(absl::StrCat("job file ", path, ": ", std::strerror(errno)));
  std::ostringstream text;
  // An empty file sets failbit on `text`, which is not an error of the file.
  text << file.rdbuf();
  if (file.bad())
    return absl::InvalidArgumentError(absl::StrCat("job file ", path, ": cannot be read"));
  return text.str();
}

// True if the text reads back as itself without quotes: a word or a decimal number.
bool IsPlain(const std::string& text) {
  const bool is_word = std::all_of(text.begin(), text.end(),
                                   [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
  if (text.empty() || (is_word && !absl::ascii_isdigit(text[0]))) return is_word && !text.empty();
  return ParseReal(text, std::numeric_limits<double>::max()).has_value() && text[0] != '.';
}

// Writes options as users do: `dim: 32` instead of `values { key: "dim" value: "32" }`.
class OptionsPrinter : public google::protobuf::TextFormat::MessagePrinter {
 public:
  void Print(const google::protobuf::Message& message, bool single_line,
             google::protobuf::TextFormat::BaseTextGenerator* generator) const override {
    const auto& values = static_cast<const Custom::Options&>(message).values();
    for (const auto& [name, value] : std::map(values.begin(), values.end())) {
      generator->PrintString(absl::StrCat(
          name, ": ",
          IsPlain(value) ? value : absl::StrCat("\"", absl::Utf8SafeCEscape(value), "\""),
          single_line ? " " : "\n"));
    }
  }
};

}  // namespace

absl::StatusOr<Job> LoadJob(const std::string& path, const std::vector<std::string>& sets,
                            const LoadOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, ReadJobFile(path));
  return ParseJob(text, path, sets, options);
}

absl::StatusOr<Job> ParseJob(const std::string& text, const std::string& path,
                             const std::vector<std::string>& sets, const LoadOptions& options) {
  Job job;
  TextReader reader(path, &job);
  const bool whole = reader.Read(text);
  for (const std::string& assignment : sets) reader.Set(assignment);
  // After a syntax error the rest of the file is unknown: a field that seems missing may be there.
  if (whole) CheckJob(job, options.num_trainers, options.models, &reader);
  if (!reader.errors().empty())
    return absl::InvalidArgumentError(absl::StrJoin(reader.errors(), "\n"));
  ResolveJob(std::filesystem::path(path).stem().string(), options.num_trainers, options.models,
             &job);
  return job;
}

uint64_t JobFingerprint(const Job& job) {
  Job unnamed = job;
  unnamed.clear_name();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    unnamed.SerializeToCodedStream(&coded);
  }
  return StableHash(bytes);
}

std::string DumpJob(const Job& job) {
  google::protobuf::TextFormat::Printer printer;
  printer.RegisterMessagePrinter(Custom::Options::descriptor(), new OptionsPrinter);  // it owns it
  std::string text;
  printer.PrintToString(job, &text);
  return text;
}

}  // namespace tandem
