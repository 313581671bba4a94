#include "trainer/loop/replica/same_data.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/random.h"
#include "kernels/base/utf8.h"
#include "trainer/checkpoint/saved_data.h"
#include "trainer/parallel/data_parallel/ddp.h"

namespace tandem::loop {

absl::Status VerifySameData(const tasks::JobData& data, comm::ProcessGroup& group,
                            absl::Time deadline) {
  // Compares no paths, because paths may differ between machines.
  std::string content = absl::StrCat(data.num_items());
  for (const SavedFile& file : data.Files())
    absl::StrAppend(&content, " ", file.bytes(), " ", file.crc32c());
  const absl::Status equal = parallel::VerifyEqual(group, StableHash(content), "data", deadline);
  if (equal.code() != absl::StatusCode::kInternal) return equal;
  const std::string files =
      absl::StrJoin(data.Files(), ", ", [](std::string* out, const SavedFile& file) {
        absl::StrAppend(out, Printable(file.name()), " of ", checkpoint::FingerprintText(file));
      });
  return absl::DataLossError(absl::StrCat("trainers have read different data: trainer ",
                                          group.rank(), " has ", files,
                                          "; give every trainer the same files"));
}

}  // namespace tandem::loop
