// Stores that fetch as on other processors, while one of these lives.
#pragma once

#include "ps/store/row_store.h"

namespace tandem::ps {

class NearFetches {
 public:
  explicit NearFetches(bool near) : before_(RowStore::FetchesNear()) { RowStore::SetFetchesNear(near); }
  ~NearFetches() { RowStore::SetFetchesNear(before_); }
  NearFetches(const NearFetches&) = delete;
  NearFetches& operator=(const NearFetches&) = delete;

 private:
  const bool before_;
};

}  // namespace tandem::ps
