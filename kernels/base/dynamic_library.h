// A shared library that is loaded when it is first needed (cuBLASLt, NCCL), so that the program starts where it is not installed.
// It stays loaded: its threads and its memory on devices outlive whoever asked for it. Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

class DynamicLibrary {
 public:
  // The first of `names` that loads: file names, which are looked for where the system's loader looks, or paths. NotFound with the
  // loader's reason for each if none does.
  static absl::StatusOr<DynamicLibrary> Load(const std::vector<std::string>& names);

  const std::string& name() const { return name_; }
  // Points `function` at the library's function of that name. NotFound if it has none.
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
