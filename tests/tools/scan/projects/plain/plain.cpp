// torch::kCUDA, cudaMalloc(1)
/* __global__ void f(); x.cuda() */
#include <string>
int cuda_cores = 0;
const char* s = "cuda is great";
const char c = '"';  // "cuda"
int cudaDevices = 3;
struct A { int cuda = 0; } a;
int mode = a.cuda;
std::string operator<<(A, int);
