// A rendezvous store in a directory, for tests whose ranks are processes: one file per key, a lock
// file for counters.
// Waits poll.
// Thread rule: any thread of any process.
#pragma once

#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/file.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "rpc/store/store.h"

namespace tandem::comm {

class FileStore final : public rpc::Store {
 public:
  FileStore() {
    std::string pattern = std::filesystem::temp_directory_path() / "tandem_store_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  // Opens a store that another process made and removes.
  explicit FileStore(std::string directory) : directory_(std::move(directory)), owned_(false) {}
  // Removes the directory. Only the process that made the directory runs this: forked children
  // leave by _exit.
  ~FileStore() override {
    if (owned_) std::filesystem::remove_all(directory_);
  }
  const std::string& directory() const { return directory_; }

  absl::Status Set(const std::string& key, const std::string& value) override {
    const std::string path = Path(key),
                      fresh = absl::StrCat(path, ".", getpid(), ".", writes_.fetch_add(1));
    std::ofstream(fresh) << value;
    std::filesystem::rename(fresh, path);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Time deadline) override {
    while (!std::filesystem::exists(Path(key))) {
      if (absl::Now() > deadline)
        return absl::DeadlineExceededError(absl::StrCat("no value for ", key));
      absl::SleepFor(absl::Microseconds(200));
    }
    std::ifstream file(Path(key));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override {
    const int lock = open(Path("lock").c_str(), O_CREAT | O_RDWR, 0600);
    flock(lock, LOCK_EX);
    int64_t value = 0;
    std::ifstream(Path(key)) >> value;
    value += amount;
    (void)Set(key, absl::StrCat(value));
    close(lock);
    return value;
  }
  absl::Status Wait(const std::string& key, int64_t value, absl::Time deadline) override {
    while (true) {
      ASSIGN_OR_RETURN(const std::string text, Get(key, deadline));
      if (std::atoll(text.c_str()) >= value) return absl::OkStatus();
      if (absl::Now() > deadline)
        return absl::DeadlineExceededError(absl::StrCat(key, " is ", text));
      absl::SleepFor(absl::Microseconds(200));
    }
  }

 private:
  std::string Path(const std::string& key) const {
    return absl::StrCat(directory_, "/", absl::StrReplaceAll(key, {{"/", "_"}}));
  }
  std::string directory_;
  std::atomic<int> writes_{0};
  const bool owned_ = true;
};

}  // namespace tandem::comm
