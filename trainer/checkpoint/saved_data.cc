#include "trainer/checkpoint/saved_data.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/utf8.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace tandem::checkpoint {
namespace {

bool SameBytes(const SavedFile& a, const SavedFile& b) {
  return a.bytes() == b.bytes() && a.crc32c() == b.crc32c();
}

template <class Files>
std::string FilesText(const Files& files) {
  return absl::StrJoin(files, " and ", [](std::string* out, const SavedFile& file) {
    absl::StrAppend(out, Printable(file.name()), " (", FingerprintText(file), ")");
  });
}

}  // namespace

std::string FingerprintText(const SavedFile& file) {
  return absl::StrFormat("%d bytes, CRC32C %08x", file.bytes(), file.crc32c());
}

bool IsSameData(const std::vector<SavedFile>& files, const CheckpointManifest& manifest) {
  return std::equal(files.begin(), files.end(), manifest.data().begin(), manifest.data().end(),
                    SameBytes);
}

absl::Status CheckSameData(const std::vector<SavedFile>& files,
                           const CheckpointManifest& manifest) {
  if (manifest.data().empty() || IsSameData(files, manifest)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint of other data: it was trained on ", FilesText(manifest.data()), ", the job has ",
      FilesText(files), "; give the same files, or say --data-changed"));
}

uint64_t CatalogueOf(const CheckpointManifest& manifest) {
  return manifest.num_items() != 0 ? manifest.num_items() : manifest.job().data().num_items();
}

absl::Status CheckSameCatalogue(const Job& job, const CheckpointManifest& manifest) {
  const uint64_t saved = CatalogueOf(manifest), wanted = job.data().num_items();
  if (saved == 0 || wanted == 0 || saved == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint of another catalogue: it has the items 1 .. ", saved,
                   ", and data.num_items is ", wanted, "; leave data.num_items out"));
}

}  // namespace tandem::checkpoint
