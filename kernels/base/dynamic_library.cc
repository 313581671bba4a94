#include "kernels/base/dynamic_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tandem {

absl::StatusOr<DynamicLibrary> DynamicLibrary::Load(const std::vector<std::string>& names) {
  TANDEM_CHECK(!names.empty());
  std::string reasons;
  for (const std::string& name : names) {
    if (void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
      return DynamicLibrary(name, library);
    const char* const reason = dlerror();
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ",
                    reason == nullptr ? name.c_str() : reason);
  }
  return absl::NotFoundError(absl::StrCat("could not load ", names.front(), " (", reasons,
                                          "): install it, or put its folder on LD_LIBRARY_PATH"));
}

absl::StatusOr<void*> DynamicLibrary::Address(const char* function_name) const {
  if (void* const address = dlsym(library_, function_name)) return address;
  return absl::NotFoundError(absl::StrCat(name_, " has no function ", function_name,
                                          ": it is of another version than expected"));
}

}  // namespace tandem
