// The memory that this process may use: that of the machine, or less in a container.
// Thread rule: any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <unistd.h>

namespace tandem {

// In bytes. Reads the limits of both versions of Linux's control groups, which lie below `root`.
inline size_t MachineMemory(const std::string& root = "/sys/fs/cgroup") {
  size_t bytes =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const char* limit : {"/memory.max", "/memory/memory.limit_in_bytes"}) {
    std::ifstream file(root + limit);
    uint64_t value = 0;
    if (file >> value) bytes = std::min<size_t>(bytes, value);  // "max" is no number
  }
  return bytes;
}

}  // namespace tandem
