#include "trainer/cli/process/host_name.h"

#include <unistd.h>

namespace tandem::cli {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace tandem::cli
