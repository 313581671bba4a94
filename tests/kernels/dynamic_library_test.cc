#include "kernels/base/dynamic_library.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(DynamicLibraryTest, FirstNameThatLoadsIsTaken) {
  const absl::StatusOr<DynamicLibrary> library =
      DynamicLibrary::Load({"libtandem_nothing.so", "libm.so.6"});
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_EQ(library->name(), "libm.so.6");
  double (*square_root)(double) = nullptr;
  const absl::Status found = library->Find("sqrt", square_root);
  ASSERT_TRUE(found.ok()) << found.ToString();
  EXPECT_EQ(square_root(9), 3);
}

TEST(DynamicLibraryTest, MissingLibraryIsNotFoundWithTheReasonOfEachName) {
  const absl::StatusOr<DynamicLibrary> library =
      DynamicLibrary::Load({"libtandem_nothing.so.1", "libtandem_nothing.so"});
  ASSERT_EQ(library.status().code(), absl::StatusCode::kNotFound);
  const std::string message(library.status().message());
  EXPECT_NE(message.find("could not load libtandem_nothing.so.1 (libtandem_nothing.so.1: "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("; libtandem_nothing.so: "), std::string::npos) << message;
  EXPECT_NE(message.find("LD_LIBRARY_PATH"), std::string::npos) << message;
}

TEST(DynamicLibraryTest, MissingFunctionIsNotFoundAndNamed) {
  const absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Load({"libm.so.6"});
  ASSERT_TRUE(library.ok());
  void (*function)() = nullptr;
  const absl::Status found = library->Find("tandem_nothing", function);
  EXPECT_EQ(found.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(found.ToString().find("libm.so.6 has no function tandem_nothing"), std::string::npos)
      << found.ToString();
  EXPECT_EQ(function, nullptr);
}

}  // namespace
}  // namespace tandem
