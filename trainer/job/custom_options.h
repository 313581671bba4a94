// The options of a custom model (Custom.Options in proto/job.proto), read by name and type. The
// model's function Options reads all of them. It runs when a job is checked, when defaults are
// filled in, and when the model is made. So an option's name, type, default and limits are written
// once:
//   dim = options.Int("dim", 32, 1, 4096);
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/job/limits.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::job {

class CustomOptions {
 public:
  // Reads the options of the job's model. Errors of the user go to `limits`, with the option's
  // place. Null: the job has been checked. REQUIRES: the job and `limits` outlive the object.
  explicit CustomOptions(const Job& job, Limits* limits = nullptr);

  // Each function returns the option's value, or `otherwise` if the job does not give the option or
  // gives a wrong value.
  int64_t Int(const std::string& name, int64_t otherwise, int64_t low, int64_t high);
  double Double(const std::string& name, double otherwise, double low, double high);
  bool Bool(const std::string& name, bool otherwise);
  // `allowed` lists the values that there are; empty: any text.
  std::string String(const std::string& name, const std::string& otherwise,
                     const std::vector<std::string>& allowed = {});

  // Refuses a value of the option that other options exclude. No effect once the job is checked.
  // `what` is the whole error, with the allowed values.
  void Fail(const std::string& name, const std::string& what);
  // Adds an error for each given option that was not read, with the nearest name.
  // REQUIRES: `limits` was given.
  void RefuseUnknown();
  // The value of each option that was read, in one spelling.
  const std::map<std::string, std::string>& values() const { return read_; }

 private:
  // The text that the job gives, or null.
  const std::string* Find(const std::string& name) const;
  void Refuse(const std::string& name, const std::string& found, const std::string& allowed);

  const Job& job_;
  Limits* const limits_;
  std::map<std::string, std::string> read_;
};

}  // namespace tandem::job
