// Controls and counters of the stand-in for cuBLASLt. Tests find this struct by its name in the
// stand-in's shared library.
#pragma once

struct EmulatedCublasLt {
  int num_choices = 0;   // calls of cublasLtMatmulAlgoGetHeuristic
  int num_products = 0;  // calls of cublasLtMatmul
  int num_gelus = 0;     // products that end with GELU
  int live_descriptors = 0;
  bool has_no_algorithm = false;
  bool has_no_gelu = false;  // no algorithm that ends with this function
  bool has_no_bias = false;  // no algorithm that adds one
};
inline constexpr char kEmulatedCublasLt[] = "emulated_cublaslt";
