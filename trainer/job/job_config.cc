#include "trainer/job/job_config.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "proto/job.pb.h"
#include "trainer/job/job_rules.h"
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
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  return text;
}

}  // namespace tandem
