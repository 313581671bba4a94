// Modules that a process hosts for others. A registry makes a module from a name and arguments in
// text. The module's constructor chooses the parameters, and Forward gets them as leaves of the
// current call. So calls of several contexts share values and never gradients.
// Thread rule: Forward runs on any number of threads at a time; a module keeps no state of a call.
// REQUIRES: a registry is filled before it is used.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/autograd/parameter.h"

namespace tandem::remote {

class Frame;

class Module {
 public:
  virtual ~Module() = default;
  // `parameters` are in the order of the ParameterSet. Inputs come from another process: inputs
  // that do not fit are InvalidArgument, never a CHECK.
  virtual absl::StatusOr<std::vector<Variable>> Forward(Frame& frame,
                                                        absl::Span<const Variable> parameters,
                                                        absl::Span<const Variable> inputs) = 0;
};

// Arguments by name: "in=16 out=4". Records an error for a missing, malformed or out-of-range
// value, and for a value that nobody asked for.
class ModuleArguments {
 public:
  static absl::StatusOr<ModuleArguments> Parse(const std::string& text);

  int64_t Integer(const std::string& name, int64_t least, int64_t most);  // required
  int64_t Integer(const std::string& name, int64_t least, int64_t most, int64_t otherwise);
  double Number(const std::string& name, double otherwise);
  std::string Text(const std::string& name, const std::string& otherwise);
  // "16,32,4"; required.
  std::vector<int64_t> Integers(const std::string& name, int64_t least, int64_t most);
  // Returns the index of the given value in `choices`; the first if the argument is absent.
  int Choice(const std::string& name, const std::vector<std::string>& choices);
  // The first recorded error. REQUIRES: every permitted argument has been asked for.
  absl::Status status() const;

 private:
  void Note(const std::string& what);
  // Returns false if there is no value; records an error if the value is required.
  bool Take(const std::string& name, bool required, std::string* value);
  int64_t InRange(const std::string& name, const std::string& text, int64_t least, int64_t most);

  std::map<std::string, std::string> values_;  // not asked for yet
  std::string asked_;                          // names, for the error
  absl::Status noted_;
};

class ModuleRegistry {
 public:
  // Adds the module's parameters to `parameters`.
  using Constructor = std::function<absl::StatusOr<std::unique_ptr<Module>>(
      ModuleArguments& arguments, ParameterSet& parameters)>;

  // REQUIRES: the name is new.
  void Add(const std::string& name, Constructor constructor);

  struct Made {
    std::unique_ptr<ParameterSet> parameters;
    std::unique_ptr<Module> module;
  };
  // Beside its own arguments, every module takes `seed` (0) and `dtype` (f32 or f64) of its
  // parameters. InvalidArgument says what is wrong.
  absl::StatusOr<Made> Make(const std::string& name, const std::string& arguments) const;

 private:
  std::map<std::string, Constructor> constructors_;
};

}  // namespace tandem::remote
