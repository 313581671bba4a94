// What a test reads from and tells the stand-in for cuBLASLt, a shared library that is found by this struct's name.
#pragma once

struct EmulatedCublasLt {
  int num_choices = 0;         // calls of cublasLtMatmulAlgoGetHeuristic
  int num_products = 0;        // calls of cublasLtMatmul
  int live_descriptors = 0;
  bool has_no_algorithm = false;
};
inline constexpr char kEmulatedCublasLt[] = "emulated_cublaslt";
