#include "trainer/cli/process/exit_code.h"

#include "kernels/base/out_of_memory.h"

namespace tandem::cli {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return 2;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return 3;
    case absl::StatusCode::kFailedPrecondition:
      return 4;
    case absl::StatusCode::kOutOfRange:
      return 70;                                // a number left its finite range
    case absl::StatusCode::kUnauthenticated:    // the master that answers belongs to another job
    case absl::StatusCode::kResourceExhausted:  // a full disk
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return kExitTemporary;
    default:
      return 1;
  }
}

}  // namespace tandem::cli
