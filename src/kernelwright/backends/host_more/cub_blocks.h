// CUB's algorithms of a block and of a warp for host code, which names them in traits and asks for the bytes of shared
// memory that they need. The layouts are CUB's own; nothing can be called here.
#ifndef KW_CUB_BLOCKS
#define KW_CUB_BLOCKS

namespace cub {
enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED,
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED,
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS,
  BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC,
};
struct NullType {};
struct Sum {};
struct Max {};
struct Min {};

namespace kw {
// CUB keeps a layout in words of at most 16 bytes.
template <class T>
struct Words {
  alignas(alignof(T) < 16 ? alignof(T) : 16) unsigned char bytes[sizeof(T)];
};
template <class T, int N>
struct alignas(16) Buffer {
  T buff[N];
};
constexpr bool power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }
constexpr int log2_up(int n) {
  int steps = 0;
  while ((1 << steps) < n) ++steps;
  return steps;
}
template <class T, int Threads, int Items, bool Sliced>
constexpr int exchanged() {
  int items = (Sliced && Threads > 32 ? 32 : Threads) * Items;
  return items + (Items > 4 && power_of_two(Items) ? items >> 5 : 0);
}
template <class T, int Threads>
constexpr int raking() {
  int most = Threads < 32 ? Threads : 32;
  int segment = (Threads + most - 1) / most;
  return (Threads + segment - 1) / segment;
}
template <class T, int Threads>
constexpr int grid() {
  int most = Threads < 32 ? Threads : 32;
  int segment = (Threads + most - 1) / most;
  return (Threads + segment - 1) / segment * (segment + (segment % 2 == 0 && segment > 2));
}
// A logical warp of a power of two shuffles; others go through shared memory.
template <class T, int Threads, bool Shuffles = power_of_two(Threads)>
struct WarpScanLayout {
  using type = NullType;
};
template <class T, int Threads>
struct WarpScanLayout<T, Threads, false> {
  using type = Words<T[Threads + (1 << (log2_up(Threads) - 1))]>;
};
template <class T, int Threads, bool Shuffles = power_of_two(Threads)>
struct WarpReduceLayout {
  using type = NullType;
};
template <class T, int Threads>
struct WarpReduceLayout<T, Threads, false> {
  struct Layout {
    T reduce[Threads + (1 << (log2_up(Threads) - 1))];
    unsigned char flags[Threads + (1 << (log2_up(Threads) - 1))];
  };
  using type = Words<Layout>;
};
template <class T, int Threads>
struct ScanByWarps {
  static constexpr int warps = (Threads + 31) / 32;
  struct alignas(32) Layout {
    T warp_aggregates[warps];
    typename WarpScanLayout<T, 32>::type warp_scan[warps];
    T block_prefix;
  };
};
template <class T, int Threads>
struct ScanByRaking {
  struct Layout {
    Words<typename WarpScanLayout<T, raking<T, Threads>()>::type> warp_scan;
    Words<Buffer<T, grid<T, Threads>()>> raking_grid;
    T block_aggregate;
  };
};
template <class T, int Threads>
struct ReduceByWarps {
  static constexpr int warps = (Threads + 31) / 32;
  struct Layout {
    typename WarpReduceLayout<T, (Threads < 32 ? Threads : 32)>::type warp_reduce[warps];
    T warp_aggregates[warps];
    T block_prefix;
  };
};
template <class T, int Threads>
struct ReduceByRaking {
  union Layout {
    Words<typename WarpReduceLayout<T, raking<T, Threads>()>::type> warp_storage;
    Words<Buffer<T, grid<T, Threads>()>> raking_grid;
  };
};
template <class T, int Threads>
struct ReduceByRakingOfOthers {
  struct Part {
    Words<typename WarpReduceLayout<T, 32>::type> warp_storage;
    Words<Buffer<T, grid<T, (Threads > 33 ? Threads - 32 : 1)>()>> raking_grid;
  };
  union Layout {
    Part default_storage;
    Words<typename ReduceByRaking<T, Threads>::Layout> fallback_storage;
  };
};
template <bool C, class A, class B>
using Either = std::conditional_t<C, A, B>;
}  // namespace kw

template <class T, int X, int Items, bool Sliced = false, int Y = 1, int Z = 1>
struct BlockExchange {
  using TempStorage = kw::Words<kw::Buffer<T, kw::exchanged<T, X * Y * Z, Items, Sliced>()>>;
};
template <class T, int X, int Items, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1>
struct BlockLoad {
  static constexpr bool plain = A == BLOCK_LOAD_DIRECT || A == BLOCK_LOAD_STRIPED || A == BLOCK_LOAD_VECTORIZE;
  static constexpr bool sliced = A == BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED;
  using TempStorage =
      kw::Words<kw::Either<plain, NullType, typename BlockExchange<T, X, Items, sliced, Y, Z>::TempStorage>>;
};
template <class T, int X, int Items, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1>
struct BlockStore {
  static constexpr bool plain = A == BLOCK_STORE_DIRECT || A == BLOCK_STORE_STRIPED || A == BLOCK_STORE_VECTORIZE;
  static constexpr bool sliced = A == BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED;
  struct Layout : BlockExchange<T, X, Items, sliced, Y, Z>::TempStorage {
    volatile int valid_items;
  };
  using TempStorage = kw::Words<kw::Either<plain, NullType, Layout>>;
};
template <class T, int X, BlockScanAlgorithm A = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1>
struct BlockScan {
  static constexpr bool by_warps = A == BLOCK_SCAN_WARP_SCANS && X * Y * Z % 32 == 0;
  using TempStorage = kw::Words<kw::Words<
      kw::Either<by_warps, typename kw::ScanByWarps<T, X * Y * Z>::Layout, typename kw::ScanByRaking<T, X * Y * Z>::Layout>>>;
};
template <class T, int X, BlockReduceAlgorithm A = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1>
struct BlockReduce {
  using Others = kw::Either<A == BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, kw::ReduceByRakingOfOthers<T, X * Y * Z>,
                            kw::ReduceByRaking<T, X * Y * Z>>;
  static constexpr bool by_warps = A == BLOCK_REDUCE_WARP_REDUCTIONS || A == BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC;
  using Chosen = kw::Either<by_warps, kw::ReduceByWarps<T, X * Y * Z>, Others>;
  using TempStorage = kw::Words<kw::Words<typename Chosen::Layout>>;
};
template <class T, int Threads = 32>
struct WarpScan {
  using TempStorage = kw::Words<typename kw::WarpScanLayout<T, Threads>::type>;
};
template <class T, int Threads = 32>
struct WarpReduce {
  using TempStorage = kw::Words<typename kw::WarpReduceLayout<T, Threads>::type>;
};
}  // namespace cub
#endif
