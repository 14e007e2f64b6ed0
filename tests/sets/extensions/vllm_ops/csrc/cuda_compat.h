#pragma once

#ifdef USE_ROCM
  #include <hip/hip_runtime.h>
#endif

#ifndef USE_ROCM
  #define WARP_SIZE 32
#else
  #define WARP_SIZE warpSize
#endif

#ifndef USE_ROCM
  #define OWN_LDG(arg) __ldg(arg)
#else
  #define OWN_LDG(arg) *(arg)
#endif

#ifndef USE_ROCM
  #define OWN_SHFL_XOR_SYNC(var, lane_mask) \
    __shfl_xor_sync(uint32_t(-1), var, lane_mask)
#else
  #define OWN_SHFL_XOR_SYNC(var, lane_mask) __shfl_xor(var, lane_mask)
#endif
