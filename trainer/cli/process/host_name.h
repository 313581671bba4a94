// The name of this machine. Members of a job compare names to know who shares a machine. The lock
// of an --out folder names the machine of its holder.
// Thread rule: any thread.
#pragma once

#include <string>

namespace tandem::cli {

// "localhost" if the system does not tell.
std::string HostName();

}  // namespace tandem::cli
