"""Whole programs on the functional machine: host and device language, the runtime's calls, and faults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.backends import program
from kernelwright.backends.source_text.split import split
from kernelwright.evaluation.judge.programs import ProgramLimits, ProgramSession, Step, build
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.machine import library

SOURCES = Path(__file__).parent / "program_sources"
HEAD = "#include <cuda_runtime.h>\n#include <cstdio>\n"


class Runner:
    """Builds and runs programs with one pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.builder = BuilderClient(pool)

    def __call__(self, source: str, *arguments: str, seconds: float = 60, races: bool = False) -> Step:
        built = build(source, self.builder)
        assert built.status == "ok", built.log
        with ProgramSession(built, source, self.pool, ProgramLimits(seconds)) as session:
            return session.program("program", arguments, races=races)


@pytest.fixture(scope="module")
def run(pool: Pool) -> Iterator[Runner]:
    library.build()
    runner = Runner(pool)
    yield runner
    runner.builder.close()


def test_language_of_both_sides(run: Runner) -> None:
    step = run((SOURCES / "language.cu").read_text(), "word", "more")
    assert step.stdout.splitlines() == [
        "apply 54 counter 7 seen 23",
        "functor 3.5 70.5",
        "managed 962",
        "pack 6.5",
        "half 3.75",
        "tile 496",
        "arguments 3 word",
    ], step.stderr
    assert step.status == 7 and not step.findings
    assert step.launches["plain"][0] == 1


def test_specialisations_of_kernels(run: Runner) -> None:
    step = run(
        "#include <cstdio>\n"
        "template <typename T> __global__ void fill(T* p);\n"
        "template <> __global__ void fill<float>(float* p) { p[threadIdx.x] = 1.5f * threadIdx.x; }\n"
        "template <> __global__ void fill<int>(int* p) { p[threadIdx.x] = 2 * threadIdx.x; }\n"
        "template <int K> __global__ void add(float* p) { p[threadIdx.x] += K; }\n"
        "template <> __global__ void add<7>(float* p) { p[threadIdx.x] += 70; }\n"
        "int main() { float *f, x[8]; int *g, y[8]; cudaMalloc(&f, 32); cudaMalloc(&g, 32);\n"
        "  fill<float><<<1, 8>>>(f); fill<int><<<1, 8>>>(g); add<1><<<1, 8>>>(f); add<7><<<1, 8>>>(f);\n"
        "  cudaMemcpy(x, f, 32, cudaMemcpyDefault); cudaMemcpy(y, g, 32, cudaMemcpyDefault);\n"
        '  printf("%g %d\\n", x[3], y[3]); }\n'
    )
    assert step.status == 0 and step.stdout == "75.5 6\n", step.stderr


def test_headers_that_only_kernels_use(run: Runner) -> None:
    names = ("cooperative_groups.h", "cooperative_groups/reduce.h", "cooperative_groups/memcpy_async.h")
    names += ("cuda_pipeline.h", "cub/warp/warp_merge_sort.cuh", "cub/block/block_exchange.cuh")
    step = run(
        HEAD + "".join(f"#include <{name}>\n" for name in names) + "namespace cg = cooperative_groups;\n"
        "__global__ void k(int* x) { auto warp = cg::tiled_partition<32>(cg::this_thread_block());\n"
        "  *x = cg::reduce(warp, int(threadIdx.x), cg::plus<int>()); }\n"
        "int main() { int *d, h; cudaMalloc(&d, 4); k<<<1, 32>>>(d); cudaMemcpy(&h, d, 4, cudaMemcpyDefault);\n"
        '  printf("%d\\n", h); }\n'
    )
    assert step.status == 0 and step.stdout == "496\n", step.stderr


def test_calls_of_the_runtime(run: Runner) -> None:
    step = run((SOURCES / "api.cu").read_text())
    assert step.stdout == "done\n" and step.status == 0, step.stderr
    rules = [f.rule for f in step.findings]
    assert rules.count("invalid-launch") == 4 and "bad-free" in rules and "copy-out-of-bounds" in rules
    assert step.findings[-1].rule == "out-of-bounds-read" and step.findings[-1].severity == "fault"


def test_host_code_cannot_follow_device_pointers(run: Runner) -> None:
    step = run(HEAD + "int main() { float* d; cudaMalloc(&d, 64); printf("
               + '"before\\n"); fflush(stdout); d[3] = 1; printf("after\\n"); }')  # fmt: skip
    assert step.status == -11 and step.stdout == "before\n"
    assert [f.rule for f in step.findings] == ["host-access"] and "byte 12" in step.findings[0].evidence


KERNEL = """
__global__ void last(float* x, int n) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  SYNC;
  if (threadIdx.x < n) x[threadIdx.x] = s[63 - threadIdx.x];
}
int main() {
  float *d, h[64] = {};
  cudaMalloc(&d, sizeof h);
  cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice);
  last<<<1, 64>>>(d, 64);
  cudaError_t error = cudaDeviceSynchronize();
  printf("%s\\n", cudaGetErrorString(error));
}
"""


def test_a_race_is_found_where_it_is_looked_for(run: Runner) -> None:
    racing = HEAD + KERNEL.replace("SYNC", "")
    found = run(racing, races=True).findings
    assert [f for f in found if "race" in f.rule and f.line], found
    assert run(racing).findings == ()
    assert run(HEAD + KERNEL.replace("SYNC", "__syncthreads()"), races=True).findings == ()


UNWRITTEN = """
__global__ void fetch(cudaTextureObject_t t, float* y) { y[threadIdx.x] = tex1D<float>(t, threadIdx.x); }
__global__ void next(const int* a, int* b) { b[threadIdx.x] = a[threadIdx.x] + 1; }
int main() {
  int *p, *q, h[32];
  float* y;
  for (int& v : h) v = -1;
  cudaMalloc(&p, 128);
  cudaMalloc(&q, 128);
  cudaMalloc(&y, 128);
  cudaMemset(p, 0xff, 64);
  cudaMemcpy(p + 16, h, UPLOAD, cudaMemcpyHostToDevice);
  cudaMemcpy(q, p, 128, cudaMemcpyDeviceToDevice);
  next<<<1, 32>>>(q, p);
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  cudaMallocArray(&array, &format, 32);
  cudaMemcpyToArray(array, 0, 0, h, TEXELS, cudaMemcpyHostToDevice);
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc description{};
  cudaTextureObject_t texture;
  cudaCreateTextureObject(&texture, &resource, &description, nullptr);
  fetch<<<1, 32>>>(texture, y);
  return cudaDeviceSynchronize();
}
"""


@pytest.mark.parametrize(
    ("upload", "texels", "places"),
    [(64, 128, []), (60, 128, ["byte 124 (of 128)"]), (64, 124, ["an array at byte 124 (of 128)"])],
)
def test_reads_of_unwritten_memory_are_found_by_who_wrote(
    run: Runner, upload: int, texels: int, places: list[str]
) -> None:
    source = HEAD + UNWRITTEN.replace("UPLOAD", str(upload)).replace("TEXELS", str(texels))
    step = run(source, races=True)
    assert step.status == 0, step.stderr
    assert [f.rule for f in step.findings] == ["uninitialised-read"] * len(places)
    assert all(place in f.evidence for place, f in zip(places, step.findings, strict=True))


@pytest.mark.parametrize(("header", "make"), [("", "cudaMallocManaged"), ("#include <thrust/sort.h>\n", "cudaMalloc")])
def test_memory_that_host_code_may_write_is_poison_too(run: Runner, header: str, make: str) -> None:
    source = header + HEAD + "__global__ void twice(int* p) { p[0] *= 2; }\n"
    source += f"int main() {{ int *p, h; {make}(&p, 4); twice<<<1, 1>>>(p); cudaMemcpy(&h, p, 4, cudaMemcpyDefault);\n"
    step = run(source + '  printf("%d\\n", h); }', races=True)
    assert (step.stdout, step.findings) == ("-2\n", ()), step.stderr


@pytest.mark.parametrize("mark", ["\\v", "\\x1c", "\\xe2\\x80\\xa8"])
def test_a_finding_keeps_its_fields_whatever_the_kernels_text_holds(run: Runner, mark: str) -> None:
    kernel = f'__global__ void k() {{ __assertfail("one {mark} line", "mine.cu", 37, "k", 1); }}\n'
    found = run(HEAD + kernel + "int main() { k<<<1, 32>>>(); cudaDeviceSynchronize(); }").findings
    assert [f.rule for f in found] == ["assert"] and "line" in found[0].evidence


def test_a_program_that_does_not_end_is_stopped(run: Runner) -> None:
    step = run(HEAD + "__global__ void k(volatile int* x) { while (*x >= 0) *x = (*x + 1) & 1023; }\n"
               "int main() { int* d; cudaMalloc(&d, 4); cudaMemset(d, 0, 4); k<<<1, 1>>>(d);"
               " return cudaDeviceSynchronize(); }", seconds=2)  # fmt: skip
    assert step.timeout and step.seconds < 20


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("#include <cufft.h>\nint main() { cufftHandle h; }", "unsupported", "cufft.h"),
        ("int main() { cudaExternalMemory_t m; cudaDestroyExternalMemory(m); }", "unsupported", "cudaDestroyExternal"),
        ("int main() { return undeclared; }", "compile_error", "undeclared"),
        ("__global__ void k(int* p) { p[0] = undeclared; }\nint main() {}", "compile_error", "undeclared"),
        *(
            ("template <class F> __global__ void k(F f) { f(1); }\nint *x;\n" + source, status, words)
            for source, status, words in (
                ("int main() { k<<<1, 1>>>([=](int) {}); }", "unsupported", "line 5: a kernel instance for a lambda"),
                ("int main() { int n = 3; k<<<1, 1>>>([&] __device__(int) { n; }); }", "compile_error", "cuda.cu(5)"),
                ("int main() { k<<<1, 1>>>([] __host__ __device__(auto) {}); }", "compile_error", "generic"),
                (
                    "struct S { int n; void f() { k<<<1, 1>>>([=] __device__(int) { n; }); } };\nint main() {}",
                    "unsupported",
                    "lambda in a member function",
                ),
                (
                    "struct S { int n; void f(); };\nvoid S::f() { k<<<1, 1>>>([=] __device__(int i) { i + n; }); }\n"
                    "int main() {}",
                    "unsupported",
                    "n in a __device__ lambda (line 6)",
                ),
                (
                    "int main() { k<<<1, 1>>>([=] __device__(int i) { i = no; }); }",
                    "compile_error",
                    '"no" is undefined',
                ),
                (
                    "int main() { struct P { int a; }; P p{3}; k<<<1, 1>>>([=] __device__(int i) { i = p.a; }); }",
                    "compile_error",
                    "main::P is local to a function",
                ),
            )
        ),
        (
            "__global__ void c() {}\n__global__ void k(int* x) {\n  c<<<1, 1>>>();\n  cudaMemsetAsync(x, 0, 4);\n}\n"
            "int main() { k<<<1, 1>>>(nullptr); }",
            "unsupported",
            "cudaMemsetAsync in a kernel (line 6)",
        ),
        (
            "__global__ void c() {}\n__global__ void k() { c<<<1, 1>>>(); cudaDeviceSynchronize(); }\nint main() {}",
            "compile_error",
            "cudaDeviceSynchronize",
        ),
    ],
)
def test_what_does_not_build_is_named(run: Runner, source: str, status: str, words: str) -> None:
    built = build(HEAD + source, run.builder)
    assert built.status == status, built.log
    assert words in built.log + " ".join(built.missing)
    assert "/tmp/" not in built.log


def test_kernels_called_with_lambdas(run: Runner) -> None:
    """Numpy computes the expected numbers by the same steps."""
    step = run((SOURCES / "lambdas.cu").read_text())
    assert step.stdout == "188.5 260.5 113036 114598 | 2016 19\n", step.stderr
    assert step.status == 0 and not step.findings
    assert any(name.startswith("each<lambda of line ") for name in step.launches)


def test_a_fault_in_a_lambda_has_its_line(run: Runner) -> None:
    step = run(HEAD + "template <class F> __global__ void each(F f) { f(threadIdx.x); }\nint main() {\n"
               "  float* x; cudaMalloc(&x, 64); int n = 2;\n  each<<<1, 32>>>([=] __device__ (int i) {\n"
               "    float v = n;\n    x[i] = v;\n  });\n  return cudaDeviceSynchronize() != 0; }")  # fmt: skip
    assert step.status == 1 and [(f.rule, f.line) for f in step.findings] == [("out-of-bounds-write", 8)]


def test_kernels_that_launch_kernels(run: Runner) -> None:
    step = run((SOURCES / "launches.cu").read_text())
    expected = ["order PabcmnoxZ!", "spread 263 264", "sorted 0", "device 0 cudaErrorInvalidConfiguration: no error"]
    expected += ["errors 9 9 0", "depth 24"]
    assert step.stdout.splitlines() == expected, step.stderr
    assert [(f.rule, f.line) for f in step.findings] == [("invalid-launch", 62), ("launch-depth", None)]
    assert step.launches["down"][0] == 25 and step.launches["add<100, float>"][0] == 1


@pytest.mark.parametrize(
    ("body", "rule", "line"),
    [
        ("__shared__ int s[32]; child<<<1, 32>>>(s);", "child-pointer", 6),
        ("int local[32]; child<<<1, 32>>>(local);", "child-pointer", 6),
        ("child<<<2, 64>>>(x);", "out-of-bounds-write", 4),
    ],
)
def test_faults_of_children(run: Runner, body: str, rule: str, line: int) -> None:
    child = "__global__ void child(int* x) {\n  x[blockIdx.x * blockDim.x + threadIdx.x] = 1;\n}\n"
    kernel = f"__global__ void k(int* x) {{ {body} }}\n"
    main = "int main() { int* x; cudaMalloc(&x, 256); k<<<1, 1>>>(x); return cudaDeviceSynchronize() != 0; }"
    step = run(HEAD + child + kernel + main)
    assert step.status == 1 and [(f.rule, f.line) for f in step.findings] == [(rule, line)]


def test_errors_have_the_lines_of_the_source(run: Runner) -> None:
    built = build(HEAD + "\n\nint main() {\n  return undeclared;\n}\n", run.builder)
    assert "cuda.cu:6" in built.log


def test_launch_fields_are_those_of_the_library() -> None:
    """The runtime fills launches by name; the library must have every required name."""
    text = (program.HOST / "launch.cpp").read_text()
    named = set(re.findall(r'request\.put\("(\w+)"', text)) - set(re.findall(r'has\("(\w+)"\)', text))
    assert named <= {name for name, *_ in library.LaunchRequest._fields_}
    assert len(named) > 10


def test_variables_have_one_name_on_both_sides() -> None:
    parts = split("static __device__ int a = 1;\n__managed__ int b;\nint main() {}\n", whole=True)
    assert "static" not in parts.device
    assert "static __attribute__((used))   int a" in parts.host  # another file may have one of that name
    assert "kw_managed_b" in parts.host and "__managed__" not in parts.device


@pytest.mark.parametrize("state", ["curandStateMRG32k3a", "curandStateSobol32_t", "curandStateScrambledSobol64"])
def test_a_generator_that_is_missing_is_named(run: Runner, state: str) -> None:
    kernel = f"__global__ void k({state}* s, float* o) {{ o[0] = curand_uniform(s); }}\n"
    built = build(HEAD + "#include <curand_kernel.h>\n" + kernel + "int main() { k<<<1, 1>>>(0, 0); }\n", run.builder)
    assert built.status == "unsupported" and built.missing == (state,)


ALGORITHMS = (
    HEAD
    + r"""
#include <cub/cub.cuh>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
struct Square {
  float k;
  __device__ float operator()(float x) const { return k * x * x; }
};
__global__ void twice(float* x, int n) {
  typedef cub::BlockReduce<float, 128> Reduce;
  __shared__ typename Reduce::TempStorage storage;
  float sum = Reduce(storage).Sum((int)threadIdx.x < n ? 1.f : 0.f);
  if (threadIdx.x == 0 && sum != n) x[0] = -1;
  if ((int)threadIdx.x < n) x[threadIdx.x] *= 2;
}
int main() {
  thrust::device_vector<float> v(100, 3.f);
  thrust::transform(v.begin(), v.end(), v.begin(), Square{2});
  twice<<<1, 128>>>(thrust::raw_pointer_cast(v.data()), 100);
  printf("%g %s\n", thrust::reduce(v.begin(), v.end()), cudaGetErrorString(cudaDeviceSynchronize()));
  unsigned h[6] = {0x21, 0x13, 0x35, 0x02, 0x44, 0x10}, *d, *o;
  cudaMalloc(&d, sizeof h);
  cudaMalloc(&o, sizeof h);
  cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice);
  void* space = nullptr;
  size_t bytes = 0;
  cub::DeviceRadixSort::SortKeys(space, bytes, d, o, 6, 0, 4);
  cudaMalloc(&space, bytes);
  cub::DeviceRadixSort::SortKeys(space, bytes, d, o, 6, 0, 4);
  cudaMemcpy(h, o, sizeof h, cudaMemcpyDeviceToHost);
  for (unsigned x : h) printf("%x ", x);
  cub::DeviceScan::InclusiveSum(space, bytes, d, o, 6);
  cudaMemcpy(h, o, sizeof h, cudaMemcpyDeviceToHost);
  printf("%x\n", h[5]);
  thrust::device_ptr<unsigned> p(d);
  thrust::sort(p, p + 6, thrust::greater<unsigned>());
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  printf("%x %x\n", h[0], h[5]);
}
"""
)


def test_algorithms_on_device_memory(run: Runner) -> None:
    step = run(ALGORITHMS)
    assert step.stdout.splitlines() == ["3600 no error", "10 21 2 13 44 35 bf", "44 2"], (step.stdout, step.stderr)
    assert step.findings == ()


def test_a_long_sum_keeps_its_small_terms(run: Runner) -> None:
    source = (
        HEAD
        + "#include <thrust/device_vector.h>\n#include <thrust/reduce.h>\n"
        + "int main() { thrust::device_vector<float> v(1 << 25, 1.f);"
        + ' printf("%.0f\\n", thrust::reduce(v.begin(), v.end(), 0.f)); }'
    )
    assert run(source).stdout == "33554432\n"


def test_a_program_stays_in_place_when_another_process_has_built_it_too(run: Runner, pool: Pool) -> None:
    """A child may run the very file that it is confined to, so the file must not be replaced."""
    source = HEAD + '__global__ void one() {}\nint main() { one<<<1, 1>>>(); puts("here"); }\n'
    built = build(source, run.builder)
    assert built.library
    executable = Path(built.library)
    first = executable.stat().st_ino
    with ProgramSession(built, source, pool, ProgramLimits(60)) as session:
        executable.with_suffix(".json").unlink()  # as another finds it that begins before the first has ended
        again = build(source, run.builder)
        assert again.library == built.library and "cached" not in again.seconds and executable.stat().st_ino == first
        assert session.program("program").stdout == "here\n"
