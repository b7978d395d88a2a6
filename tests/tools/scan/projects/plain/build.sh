# nvcc and cuda
echo "cuda nvcc"
x=1 # nvidia-smi
