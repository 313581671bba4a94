#include "trainer/cli/process/process_limits.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <new>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/out_of_memory.h"
#include "trainer/cli/process/supervisor.h"

namespace tandem::cli {

namespace {

constexpr rlim_t kLeastFiles = 64;  // for libraries, sockets to a few servers, a checkpoint's files
// For stacks and arenas of gRPC's threads. With less address space, oneDNN and gRPC crash without a
// message.
constexpr rlim_t kLeastAddresses = rlim_t{4} << 30;

[[noreturn]] void OnNoMemory() { OutOfMemory(0); }

[[noreturn]] void EndForWantOfThreads() {
  rlimit limit{};
  char allowed[32] = "unlimited";
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    std::snprintf(allowed, sizeof allowed, "%llu", static_cast<unsigned long long>(limit.rlim_cur));
  }
  std::fprintf(stderr,
               "%scannot start one more thread: their number (%s, ulimit -u) or memory for a stack "
               "(ulimit -v) ran out\n",
               kOwnFailure, allowed);
  _exit(kExitTemporary);
}

[[noreturn]] void OnTerminate() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    OnNoMemory();
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      EndForWantOfThreads();
    }
    std::fprintf(stderr, "%s%s\n", kOwnFailure, error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s%s\n", kOwnFailure, error.what());
  } catch (...) {
  }
  std::abort();
}

}  // namespace

void PrepareLimits() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) close(fd);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  std::set_new_handler(OnNoMemory);
  std::set_terminate(OnTerminate);
}

absl::Status CheckLimits() {
  rlimit files{}, addresses{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kLeastFiles) {
    return absl::ResourceExhaustedError(absl::StrCat("this process may open ", files.rlim_cur,
                                                     " files (ulimit -n); at least ", kLeastFiles,
                                                     " are wanted"));
  }
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur < kLeastAddresses) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this process may use ", addresses.rlim_cur >> 20,
                     " MiB of addresses (ulimit -v); at least ", kLeastAddresses >> 20,
                     " are wanted, of which libraries use few but reserve many"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::cli
