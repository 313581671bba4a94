// A shared library (cuBLASLt, NCCL) that is loaded at its first use, so the program starts without
// it. The library stays loaded, because its threads and its device memory outlive the code that
// asked for it.
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

class DynamicLibrary {
 public:
  // Loads the first of `names` that can be loaded. A name is a path, or a file name for the system
  // loader's search path. NotFound if none loads, with the loader's reason for each.
  static absl::StatusOr<DynamicLibrary> Load(const std::vector<std::string>& names);

  const std::string& name() const { return name_; }
  // Points `function` at the library's function of that name. NotFound if the library has none.
  template <class Function>
  absl::Status Find(const char* function_name, Function*& function) const {
    absl::StatusOr<void*> address = Address(function_name);
    if (!address.ok()) return address.status();
    function = reinterpret_cast<Function*>(*address);
    return absl::OkStatus();
  }

 private:
  DynamicLibrary(std::string name, void* library) : name_(std::move(name)), library_(library) {}
  absl::StatusOr<void*> Address(const char* function_name) const;

  std::string name_;
  void* library_;
};

}  // namespace tandem
