#include "kernels/base/out_of_memory.h"

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tandem {

namespace {

constexpr unsigned long long kMegabyte = 1'000'000;

// Reads the address space in use, because limits apply to address space.
unsigned long long MegabytesInUse() {
  char text[64] = {};
  const int file = open("/proc/self/statm", O_RDONLY);
  if (file < 0) return 0;
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  return size > 0 ? std::strtoull(text, nullptr, 10) *
                        static_cast<unsigned long long>(sysconf(_SC_PAGESIZE)) / kMegabyte
                  : 0;
}

}  // namespace

void OutOfMemory(size_t wanted_bytes) {
  char wanted[48] = "", limit[64] = "", line[256];
  if (wanted_bytes > 0) std::snprintf(wanted, sizeof wanted, ": %zu bytes wanted", wanted_bytes);
  rlimit allowed{};
  if (getrlimit(RLIMIT_AS, &allowed) == 0 && allowed.rlim_cur != RLIM_INFINITY) {
    std::snprintf(limit, sizeof limit, " of %llu MB allowed (ulimit -v)",
                  static_cast<unsigned long long>(allowed.rlim_cur) / kMegabyte);
  }
  const int size = std::snprintf(line, sizeof line, "error: out of memory%s; %llu MB in use%s\n",
                                 wanted, MegabytesInUse(), limit);
  if (size > 0 && write(STDERR_FILENO, line, static_cast<size_t>(size)) < 0) _exit(kExitTemporary);
  _exit(kExitTemporary);
}

}  // namespace tandem
