// The text of `tandem --version`: the program's version, and what it computes with on this machine.
// Thread rule: any thread.
#pragma once

#include <string>

namespace tandem::cli {

std::string VersionText();

}  // namespace tandem::cli
