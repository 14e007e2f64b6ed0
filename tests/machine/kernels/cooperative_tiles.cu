#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tile_statistics(const float* x, float* sums, int* maxima, int* prefix, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int i = block.group_index().x * block.size() + block.thread_rank();
    float v = i < n ? x[i] : 0.0f;
    float total = cg::reduce(tile, v, cg::plus<float>());
    int top = cg::reduce(tile, (int)(v * 100.0f), cg::greater<int>());
    int before = cg::exclusive_scan(tile, (int)tile.thread_rank() + 1);
    if (tile.thread_rank() == 0) {
        sums[i / 8] = total;
        maxima[i / 8] = top;
    }
    prefix[i] = before + (int)tile.any(v > 2.0f) * 100;
    block.sync();
}
