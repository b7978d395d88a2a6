__global__ void scale(float* x, float f) { x[threadIdx.x] *= f; }
void launch(float* x) { scale<<<1, 32>>>(x, 2.f); }
