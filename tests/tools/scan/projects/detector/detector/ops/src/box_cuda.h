#pragma once
#include <cuda_runtime.h>

void box_iou_launch(const float* a, const float* b, float* out, int n, int m, cudaStream_t stream);
