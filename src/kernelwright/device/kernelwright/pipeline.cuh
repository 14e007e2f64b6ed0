#pragma once
// Barriers in shared memory and bulk copies that complete on them (sm_90).

namespace kw {

__device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ inline void barrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to bulk copies; __syncthreads() has to follow.
__device__ inline void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Arrives and expects `bytes` more from bulk copies.
__device__ inline void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ inline void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Orders earlier writes to shared memory before reads by tensor cores and bulk copies.
__device__ inline void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copies up to 16 bytes (0 or more), and writes zeros for the rest of them.
__device__ inline void copy16(unsigned to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Copies 4 bytes, or writes zeros where `inside` is false.
__device__ inline void copy4(unsigned to, const void* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
}

// Arrives on the barrier when this thread's copies of 4 and 16 bytes are complete.
__device__ inline void copies_arrive(unsigned barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Waits for all threads of the cluster.
__device__ inline void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Waits until the phase of this parity is complete.
__device__ inline void barrier_wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{.reg .pred p;\n"
        "WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra WAIT;}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Copies bytes (a multiple of 16, both addresses too) from global to shared memory; they count on the barrier.
__device__ inline void bulk_copy(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
        "r"(bytes), "r"(barrier)
        : "memory");
}

// Reads a float at this address of the shared memory of block `rank` of the cluster.
__device__ inline float cluster_read(unsigned address, unsigned rank) {
    float found;
    asm volatile(
        "{.reg .b32 there; mapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];}"
        : "=f"(found)
        : "r"(address), "r"(rank)
        : "memory");
    return found;
}

// Waits for the first `threads` threads (a multiple of 32) that use barrier `id` (1 to 15).
__device__ inline void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int REGISTERS>
__device__ inline void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ inline void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

}  // namespace kw
