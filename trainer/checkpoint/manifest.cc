#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/crc32c.h"
#include "kernels/base/status_macros.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "trainer/checkpoint/folder.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kNumVirtualShards = 1024;
constexpr uint64_t kMaxStep = uint64_t{1} << 53;
// Far more than a vocabulary of all characters and one file per server need.
constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

std::string PathOf(const std::string& folder) { return folder + "/manifest.textproto"; }

std::string ChecksumLine(const std::string& text) {
  return absl::StrFormat("# crc32c %08x\n", Crc32c(0, text.data(), text.size()));
}

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat(line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Names must be of files in the folder and distinct: a manifest must not lead a reader elsewhere.
absl::Status CheckNames(const CheckpointManifest& manifest) {
  std::set<std::string> names;
  const auto check = [&names](const SavedFile& file) {
    return IsPlainFileName(file.name()) && names.insert(file.name()).second;
  };
  bool fine = check(manifest.dense());
  if (manifest.has_items()) fine &= check(manifest.items());
  if (manifest.has_catalogue()) fine &= check(manifest.catalogue());
  for (const SavedFile& file : manifest.rows()) fine &= check(file);
  return fine ? absl::OkStatus()
              : absl::FailedPreconditionError("a file's name is missing, repeated or a path");
}

// A folder named for another step would pass for that step's checkpoint. A file missing in the
// manifest would be lost.
absl::Status CheckFolder(const std::string& folder, const CheckpointManifest& manifest) {
  const std::optional<uint64_t> step =
      StepOfName(fs::path(folder).lexically_normal().filename().string());
  if (step && *step != manifest.step()) {
    return absl::FailedPreconditionError(
        absl::StrCat("is of step ", manifest.step(), ", its folder of step ", *step,
                     ": was the folder renamed? Give the folder its name back"));
  }
  std::set<std::string> named{manifest.dense().name()};
  for (const SavedFile& file : manifest.rows()) named.insert(file.name());
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path name = entry.path().filename();
    const bool is_part = name.extension() == ".rows" || name.extension() == ".safetensors";
    if (is_part && named.count(name.string()) == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "leaves out ", name.string(), ", which is in its folder; take another checkpoint"));
    }
  }
  return absl::OkStatus();
}

// Refuses counts that no run can have.
absl::Status CheckCounts(const CheckpointManifest& manifest) {
  const auto wrong = [](const char* field, auto value, const char* bound, auto most) {
    return absl::FailedPreconditionError(absl::StrCat(field, " is ", value, ", above ", bound, ", ",
                                                      most, "; take another checkpoint"));
  };
  const uint64_t step = manifest.step(),
                 batch = static_cast<uint64_t>(std::max(0, manifest.job().train().batch_size()));
  if (step > kMaxStep) return wrong("step", step, "the most that is read", kMaxStep);
  if (manifest.best_step() > step) return wrong("best_step", manifest.best_step(), "step", step);
  if (manifest.epoch() > step + 1) return wrong("epoch", manifest.epoch(), "step + 1", step + 1);
  if (manifest.best_epoch() > step + 1)
    return wrong("best_epoch", manifest.best_epoch(), "step + 1", step + 1);
  if (manifest.epoch_steps() > step)
    return wrong("epoch_steps", manifest.epoch_steps(), "step", step);
  if (manifest.epoch_skipped_steps() > manifest.epoch_steps()) {
    return wrong("epoch_skipped_steps", manifest.epoch_skipped_steps(), "epoch_steps",
                 manifest.epoch_steps());
  }
  if (manifest.evaluations_since_best() > step)
    return wrong("evaluations_since_best", manifest.evaluations_since_best(), "step", step);
  if (batch > 0 && manifest.samples_consumed() / batch > step) {
    return wrong("samples_consumed", manifest.samples_consumed(), "step x train.batch_size",
                 step * batch);
  }
  if (!std::isfinite(manifest.best_selection()) || !std::isfinite(manifest.epoch_loss())) {
    return absl::FailedPreconditionError(
        "best_selection or epoch_loss is not finite; take another checkpoint");
  }
  return absl::OkStatus();
}

absl::Status CheckManifest(const std::string& folder, const CheckpointManifest& manifest) {
  if (manifest.format_version() != kFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat("format version ", manifest.format_version(),
                                                      "; this tandem reads ", kFormatVersion,
                                                      ": use the one that wrote it"));
  }
  if (manifest.num_virtual_shards() != kNumVirtualShards) {
    return absl::FailedPreconditionError(absl::StrCat(
        manifest.num_virtual_shards(), " virtual shards, must be ", kNumVirtualShards));
  }
  RETURN_IF_ERROR(CheckNames(manifest));
  RETURN_IF_ERROR(CheckFolder(folder, manifest));
  return CheckCounts(manifest);
}

// Older jobs have no `placement` field; the model decides theirs. A kind that this program does not
// know is newer than the field.
Job::Placement PlacementOf(const Job& job, const job::Models& models) {
  if (job.placement() != Job::PLACEMENT_UNSPECIFIED) return job.placement();
  const auto rules = models.Find(job.model());
  return rules.ok() ? (*rules)->old_placement : Job::PS;
}

// The fields that define a saved model's shape and meaning.
Job ModelOf(const Job& job, const job::Models& models) {
  Job kept;
  kept.set_placement(PlacementOf(job, models));
  kept.mutable_data()->set_ids(job.data().ids());
  *kept.mutable_model() = job.model();
  if (const auto rules = models.Find(job.model()); rules.ok())
    (*rules)->clear_training_fields(kept.mutable_model());
  for (const Table& table : job.tables()) {
    Table& added = *kept.add_tables();
    added.set_name(table.name());
    added.set_dim(table.dim());
  }
  return kept;
}

// The fields that decide the computation of a run from step to step. Excludes fields that users
// tune during a run (learning rates, schedules, decay, clipping), and fields about lengths,
// frequencies and machines.
Job RunOf(const Job& job, const job::Models& models) {
  Job kept;
  kept.set_seed(job.seed());
  kept.set_placement(PlacementOf(job, models));
  *kept.mutable_model() = job.model();
  *kept.mutable_tables() = job.tables();
  for (Table& table : *kept.mutable_tables()) {
    table.clear_learning_rate();
    table.clear_weight_decay();
    table.clear_max_row_norm();
    table.clear_non_finite();
  }
  kept.mutable_data()->set_format(job.data().format());
  kept.mutable_data()->set_num_items(job.data().num_items());
  kept.mutable_data()->set_train_fraction(job.data().train_fraction());
  kept.mutable_train()->set_batch_size(job.train().batch_size());
  kept.mutable_train()->set_select_by(job.train().select_by());
  kept.mutable_optimizer()->set_kind(job.optimizer().kind());
  kept.mutable_optimizer()->set_beta1(job.optimizer().beta1());
  kept.mutable_optimizer()->set_beta2(job.optimizer().beta2());
  kept.mutable_optimizer()->set_epsilon(job.optimizer().epsilon());
  return kept;
}

// Returns "", or every differing field with both values: "model.sequence_rec.layers: 2 -> 3; added:
// tables[1]: ...". An absent field equals one that is 0, because older manifests do not record
// presence.
std::string Differences(const Job& saved, const Job& ours) {
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
  std::string report;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(saved, ours)) return "";
  absl::StripTrailingAsciiWhitespace(&report);  // one line per difference
  return absl::StrReplaceAll(report, {{"\n", "; "}, {"modified: ", ""}});
}

// Checks that the tables' specifications match the job. A replicated table is a dense parameter and
// has no specification.
absl::Status CheckSpecs(const Job& job, const CheckpointManifest& manifest,
                        const job::Models& models) {
  if (PlacementOf(job, models) == Job::REPLICATED && manifest.tables().empty())
    return absl::OkStatus();
  bool same = manifest.tables_size() == job.tables_size();
  for (int i = 0; same && i < job.tables_size(); ++i) {
    const TableSpec& spec = manifest.tables(i);
    same = spec.name() == job.tables(i).name() && spec.number() == static_cast<uint32_t>(i) + 1 &&
           spec.dim() == static_cast<uint32_t>(job.tables(i).dim());
  }
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "checkpoint manifest: its tables are not those of its job; take another checkpoint");
}

}  // namespace

absl::Status WriteManifest(const std::string& folder, CheckpointManifest manifest) {
  manifest.set_format_version(kFormatVersion);
  manifest.set_num_virtual_shards(kNumVirtualShards);
  std::string text;
  google::protobuf::TextFormat::PrintToString(manifest, &text);
  text += ChecksumLine(text);
  FileWriter writer(PathOf(folder));
  writer.Append(text.data(), text.size());
  return writer.Finish().status();
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& folder) {
  const std::string path = PathOf(folder);
  const auto wrong = [&path](auto... text) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint manifest ", path, ": ", text...));
  };
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    return wrong(
        "cannot be read as a file; give a run's OUT/checkpoints or one of its step-XXXXXXXX");
  if (const uint64_t size = fs::file_size(path, error); error || size > kMaxBytes) {
    return wrong("has ", size, " bytes, none has more than ", kMaxBytes,
                 "; take another checkpoint");
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();  // also for an empty file: the checksum line will be missing
  if (!file)
    return wrong("cannot be read; give a run's OUT/checkpoints or one of its step-XXXXXXXX");
  std::string text = bytes.str();
  const size_t line_bytes = ChecksumLine("").size();
  const size_t body = text.size() >= line_bytes ? text.size() - line_bytes : 0;
  if (text.substr(body) != ChecksumLine(text.substr(0, body))) {
    return wrong(
        "damaged or cut short: its checksum is not what its last line says; take another "
        "checkpoint");
  }
  CheckpointManifest manifest;
  FirstError parse_error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&parse_error);
  if (!parser.ParseFromString(text, &manifest))
    return wrong(parse_error.text(), " (written by another version of tandem?)");
  if (absl::Status status = CheckManifest(folder, manifest); !status.ok())
    return wrong(status.message());
  return manifest;
}

absl::Status CheckSameModel(const Job& job, const CheckpointManifest& manifest,
                            const job::Models& models) {
  const std::string differences =
      Differences(ModelOf(manifest.job(), models), ModelOf(job, models));
  if (differences.empty()) return CheckSpecs(job, manifest, models);
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint of another model: ", differences,
                   " (checkpoint -> job); use the job that it was trained with"));
}

absl::Status CheckSameVocabulary(const Job& job, const std::string& symbols,
                                 const CheckpointManifest& manifest) {
  if (symbols == manifest.symbols()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint of another text: ", job.data().path(),
                   " has not the vocabulary that it was trained with, of ",
                   manifest.job().data().path(), "; give that text as data.path"));
}

absl::Status CheckSameRun(const Job& job, const CheckpointManifest& manifest,
                          const job::Models& models) {
  RETURN_IF_ERROR(CheckSameModel(job, manifest, models));
  const std::string differences = Differences(RunOf(manifest.job(), models), RunOf(job, models));
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint of another run: ", differences,
                   " (checkpoint -> job); resume with the job that wrote it, or start a new run"));
}

}  // namespace tandem::checkpoint
