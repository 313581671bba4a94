// Early return on absl::Status, for causes outside this process.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TANDEM_CONCAT_INNER_(a, b) a##b
#define TANDEM_CONCAT_(a, b) TANDEM_CONCAT_INNER_(a, b)

#define RETURN_IF_ERROR(expression)                                                           \
  do {                                                                                        \
    if (absl::Status tandem_status = (expression); !tandem_status.ok()) return tandem_status; \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_IMPL_(TANDEM_CONCAT_(tandem_statusor_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expression)  \
  auto statusor = (expression);                            \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = std::move(statusor).value()
