// libnvidia-ml.so.1: empty. Its functions are in the stub, on which it depends (nvml.cpp).
