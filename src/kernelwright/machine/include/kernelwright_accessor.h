// Tensor accessors with one memory layout for host and device: a pointer, then sizes, then strides.
//
// Compiled twice: by g++ with the stand-in for torch/extension.h, and by NVRTC with device code. No includes, so that
// either side may define the integer types.
#pragma once

#ifdef __CUDACC__
#define KW_HOST_DEVICE __host__ __device__
#else
#define KW_HOST_DEVICE
#endif

namespace at {

template <typename T>
struct DefaultPtrTraits {
  typedef T* PtrType;
};
template <typename T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};

// A view of the trailing dimensions of somebody else's sizes and strides.
template <typename T, unsigned long N, template <typename U> class PtrTraits = DefaultPtrTraits,
          typename index_t = long>
class TensorAccessor {
 public:
  typedef typename PtrTraits<T>::PtrType PtrType;
  KW_HOST_DEVICE TensorAccessor(PtrType data, const index_t* sizes, const index_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  KW_HOST_DEVICE TensorAccessor<T, N - 1, PtrTraits, index_t> operator[](index_t i) const {
    return TensorAccessor<T, N - 1, PtrTraits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }
  KW_HOST_DEVICE index_t size(index_t i) const { return sizes_[i]; }
  KW_HOST_DEVICE index_t stride(index_t i) const { return strides_[i]; }
  KW_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  const index_t* sizes_;
  const index_t* strides_;
};

template <typename T, template <typename U> class PtrTraits, typename index_t>
class TensorAccessor<T, 1, PtrTraits, index_t> {
 public:
  typedef typename PtrTraits<T>::PtrType PtrType;
  KW_HOST_DEVICE TensorAccessor(PtrType data, const index_t* sizes, const index_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  KW_HOST_DEVICE T& operator[](index_t i) const { return data_[strides_[0] * i]; }
  KW_HOST_DEVICE index_t size(index_t i) const { return sizes_[i]; }
  KW_HOST_DEVICE index_t stride(index_t i) const { return strides_[i]; }
  KW_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  const index_t* sizes_;
  const index_t* strides_;
};

// What a kernel takes by value: sizes and strides travel inside.
template <typename T, unsigned long N, template <typename U> class PtrTraits = DefaultPtrTraits,
          typename index_t = long>
class GenericPackedTensorAccessor {
 public:
  typedef typename PtrTraits<T>::PtrType PtrType;
  template <typename source_t>
  KW_HOST_DEVICE GenericPackedTensorAccessor(PtrType data, const source_t* sizes, const source_t* strides)
      : data_(data) {
    for (unsigned long k = 0; k < N; ++k) {
      sizes_[k] = static_cast<index_t>(sizes[k]);
      strides_[k] = static_cast<index_t>(strides[k]);
    }
  }
  KW_HOST_DEVICE TensorAccessor<T, N - 1, PtrTraits, index_t> operator[](index_t i) const {
    return TensorAccessor<T, N - 1, PtrTraits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }
  KW_HOST_DEVICE index_t size(index_t i) const { return sizes_[i]; }
  KW_HOST_DEVICE index_t stride(index_t i) const { return strides_[i]; }
  KW_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  index_t sizes_[N];
  index_t strides_[N];
};

template <typename T, template <typename U> class PtrTraits, typename index_t>
class GenericPackedTensorAccessor<T, 1, PtrTraits, index_t> {
 public:
  typedef typename PtrTraits<T>::PtrType PtrType;
  template <typename source_t>
  KW_HOST_DEVICE GenericPackedTensorAccessor(PtrType data, const source_t* sizes, const source_t* strides)
      : data_(data) {
    sizes_[0] = static_cast<index_t>(sizes[0]);
    strides_[0] = static_cast<index_t>(strides[0]);
  }
  KW_HOST_DEVICE T& operator[](index_t i) const { return data_[strides_[0] * i]; }
  KW_HOST_DEVICE index_t size(index_t i) const { return sizes_[i]; }
  KW_HOST_DEVICE index_t stride(index_t i) const { return strides_[i]; }
  KW_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  index_t sizes_[1];
  index_t strides_[1];
};

template <typename T, unsigned long N, template <typename U> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, PtrTraits, int>;
template <typename T, unsigned long N, template <typename U> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, PtrTraits, long>;
template <typename T, unsigned long N, template <typename U> class PtrTraits = DefaultPtrTraits,
          typename index_t = long>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, PtrTraits, index_t>;

}  // namespace at

namespace torch {
using at::DefaultPtrTraits;
using at::GenericPackedTensorAccessor;
using at::PackedTensorAccessor;
using at::PackedTensorAccessor32;
using at::PackedTensorAccessor64;
using at::RestrictPtrTraits;
using at::TensorAccessor;
}  // namespace torch
