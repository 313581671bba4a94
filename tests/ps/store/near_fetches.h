// While an instance lives, stores fetch as on processors that fetch near (or not). Lets a test
// cover the other path.
#pragma once

#include "ps/store/row_store.h"

namespace tandem::ps {

class NearFetches {
 public:
  explicit NearFetches(bool near) : before_(RowStore::FetchesNear()) {
    RowStore::SetFetchesNear(near);
  }
  ~NearFetches() { RowStore::SetFetchesNear(before_); }
  NearFetches(const NearFetches&) = delete;
  NearFetches& operator=(const NearFetches&) = delete;

 private:
  const bool before_;
};

}  // namespace tandem::ps
