"""The builder: verdicts on bad source, blame for failures, information it must not reveal, and its cache."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernelwright.backends.build import build, cpp_flags, device_flags
from kernelwright.backends.source_text import includes
from kernelwright.backends.source_text.plain import exported_functions, plain_extension_source
from kernelwright.builds import BuildRequest, BuildResult

KERNEL = "__global__ void k(float* y) { y[threadIdx.x] = 1.f; }\n"
FORWARD = "torch::Tensor forward(torch::Tensor x) { k<<<1, 32>>>(x.data_ptr<float>()); return x; }\n"
MODULE = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }\n'
EXT = "#include <torch/extension.h>\n"


def extension(cache: Path, cuda: str, cpp: str = "", functions: tuple[str, ...] = ()) -> BuildResult:
    return build(BuildRequest("extension", "candidate", cuda, cpp, functions), cache)


def wrapper(body: str) -> str:
    """Returns a C++ extension whose `forward` has `body`."""
    return f"torch::Tensor forward(torch::Tensor x) {{\n{body}\nreturn x; }}\n{MODULE}"


def test_good_source_builds(cache: Path) -> None:
    result = extension(cache, EXT + KERNEL + FORWARD + MODULE)
    assert result.status == "ok", result.log
    assert result.functions == ("forward",) and result.library and Path(result.library).exists()
    assert ".entry" in (result.ptx or "")


def test_second_build_is_a_hit_and_failures_are_kept_too(cache: Path) -> None:
    good, bad = EXT + KERNEL + FORWARD + MODULE + "// twice\n", EXT + KERNEL + "nonsense\n" + MODULE
    for source in (good, bad):
        first, second = extension(cache, source), extension(cache, source)
        assert "cached" not in first.seconds and second.seconds["cached"] == 1.0
        assert (first.status, first.log) == (second.status, second.log)


def test_damaged_cache_entry_is_built_again(cache: Path) -> None:
    source = EXT + KERNEL + FORWARD + MODULE + "// damaged\n"
    first = extension(cache, source)
    assert first.library
    entry = Path(first.library).with_suffix(".json")
    entry.write_text("{")
    assert extension(cache, source).status == "ok"
    os.unlink(first.library)
    assert Path(extension(cache, source).library or "").exists()


OWN_FAULTS = {
    "device syntax": EXT + "__global__ void k(float* y) { y[0] = ; }\n" + FORWARD + MODULE,
    "device name": EXT + "__global__ void k(float* y) { y[0] = unknown_value; }\n" + FORWARD + MODULE,
    "host syntax": EXT + KERNEL + "torch::Tensor forward(torch::Tensor x) { return x }\n" + MODULE,
    "host name": EXT + KERNEL + "torch::Tensor forward(torch::Tensor x) { return y; }\n" + MODULE,
    "kernel argument": EXT + KERNEL + FORWARD.replace("x.data_ptr<float>()", "x.data_ptr<int>()") + MODULE,
    "kernel name": EXT + KERNEL + FORWARD.replace("k<<<", "kk<<<") + MODULE,
    "argument count": EXT + KERNEL + FORWARD.replace("<float>()", "<float>(), 3") + MODULE,
    "inside an instance": EXT
    + "template <class T> __global__ void k(T* y) { y[0] = __shfl_down_sync(0xffffffff, P<T>::x, 1); }\n"
    + FORWARD.replace("k<<<", "k<float><<<")
    + MODULE,
    "late inside an instance": EXT
    + "template <class T> __global__ void k(T* y) { y->nothing(); }\n"
    + FORWARD.replace("k<<<", "k<float><<<")
    + MODULE,
    "unbalanced": EXT + KERNEL + FORWARD + MODULE + "void f() { if (1) {\n",
    "no module": EXT + KERNEL + FORWARD,
    "module of another name": EXT + KERNEL + FORWARD + MODULE.replace("TORCH_EXTENSION_NAME", "other"),
    "stream header": EXT + KERNEL + FORWARD.replace("1, 32", "1, 32, 0, at::cuda::getCurrentCUDAStream()") + MODULE,
    "tensor to pointer": EXT + KERNEL + FORWARD.replace("x.data_ptr<float>()", "x") + MODULE,
    "own header": EXT + '#include "my_kernels.h"\n' + KERNEL + FORWARD + MODULE,
}


@pytest.mark.parametrize("name", OWN_FAULTS)
def test_own_faults_are_compile_errors(cache: Path, name: str) -> None:
    result = extension(cache, OWN_FAULTS[name])
    assert result.status == "compile_error", (result.status, result.missing, result.log)
    assert "error" in result.log


def test_function_that_is_not_declared_in_cpp_sources(cache: Path) -> None:
    result = extension(cache, EXT + KERNEL + FORWARD, "", ("forward",))
    assert result.status == "compile_error" and "'forward' was not declared in this scope" in result.log
    assert extension(cache, KERNEL, "", ("k",)).status == "compile_error"


def test_launch_in_the_cpp_file_is_a_syntax_error(cache: Path) -> None:
    result = extension(cache, KERNEL, "void k(float*);\n" + FORWARD, ("forward",))
    assert result.status == "compile_error" and "main.cpp:2" in result.log


def test_function_declared_but_never_defined(cache: Path) -> None:
    result = extension(cache, KERNEL, "torch::Tensor forward(torch::Tensor x);", ("forward",))
    assert result.status == "compile_error" and "undefined reference" in result.log


def test_module_defined_twice(cache: Path) -> None:
    declaration = "torch::Tensor forward(torch::Tensor x);"
    result = extension(cache, EXT + KERNEL + FORWARD + MODULE, declaration, ("forward",))
    assert extension(cache, EXT + KERNEL + FORWARD + MODULE, declaration + MODULE).status == "compile_error"
    assert result.status == "compile_error" and "PyInit_" in result.log


GAPS = {
    "member": ("x.coalesce();", "at::Tensor::coalesce"),
    "function": ("torch::_sample_dirichlet(x);", "torch::_sample_dirichlet"),
    "alias": ("namespace F = torch::nn::functional; F::pad(x, 1);", "torch::nn::functional::pad"),
    "template": ("c10::ExclusivelyOwned<at::Tensor> b(x);", "c10::ExclusivelyOwned"),
    "module": ("torch::nn::Linear layer(3, 4);", "torch::nn::Linear"),
    "cusparse": ("cusparseHandle_t handle;", "cusparseHandle_t"),
    "runtime": ("cudaMemPool_t pool;", "cudaMemPool_t"),
    "operators": ("auto y = at::_ops::relu::call(x);", "at::_ops"),
    "list": ("torch::List<at::Tensor> l; auto y = l.elementType();", "c10::List<at::Tensor>::elementType"),
    "python": ('py::exec("1");', "pybind11::exec"),
    "macro": ("RECORD_OUTPUTS(x);", "RECORD_OUTPUTS"),
}
MISTAKES = {
    "operator": "torch::emptty({3});",
    "member": "x.contigous();",
    "list": "torch::List<at::Tensor> l; auto y = l.gett(0);",
    "python": 'py::prnt("x");',
    "macro": "RECORD_FUNKTION(x);",
    "vector": "std::vector<int> v; v.get(0);",
}


@pytest.mark.parametrize("name", GAPS)
def test_gaps_of_the_stand_in_are_unsupported(cache: Path, name: str) -> None:
    body, missing = GAPS[name]
    result = extension(cache, "", wrapper(body))
    assert result.status == "unsupported", result.log
    assert missing in result.missing


@pytest.mark.parametrize("name", MISTAKES)
def test_names_that_torch_does_not_have_either_are_mistakes(cache: Path, name: str) -> None:
    result = extension(cache, "", wrapper(MISTAKES[name]))
    assert result.status == "compile_error", result.missing


@pytest.mark.parametrize("header", ["curand.h", "cudnn_frontend.h", "cutlass/cutlass.h", "thrust/sort.h", "nccl.h"])
def test_missing_library_headers_are_unsupported(cache: Path, header: str) -> None:
    result = extension(cache, EXT + f"#include <{header}>\n" + KERNEL + FORWARD + MODULE)
    assert result.status == "unsupported" and header in result.missing, result.log


NOT_IN_TORCH = {
    "member": "x.frobnicate();",
    "function": "torch::frobnicate(x);",
    "attribute of Python": "int64_t n = x.shape[0];",
    "dimensions without braces": "x.permute(0, 2, 1);",
    "sizes without braces": "torch::zeros(2, 3);",
    "two sizes": "x.view(2, 3);",
    "tuple for a tensor": "torch::Tensor y = x.max(1);",
    "text for a tensor": 'torch::relu("x");',
    "namespace of another name": "torch::cuda::getCurrentCUDAStream();",
    "macro of its own": "CUDA_KERNEL_LAUNCH_CHECK();",
    "dropped long ago": "THCudaCheck(cudaGetLastError());",
    "no such runtime call": "cudaFrobnicate();",
    "no such field": "cudaDeviceProp p; int n = p.cudaCores;",
}


@pytest.mark.parametrize("name", NOT_IN_TORCH)
def test_what_torch_does_not_have_either_is_the_candidates_error(cache: Path, name: str) -> None:
    result = extension(cache, "", wrapper(NOT_IN_TORCH[name]))
    assert result.status == "compile_error", (result.status, result.missing, result.log)


@pytest.mark.parametrize("header", ["THC/THC.h", "ATen/cuda/Fancy2.h", "torch/extensions.h", "c10/cuda/CUDAStreams.h"])
def test_headers_that_torch_has_not_are_the_candidates_error(cache: Path, header: str) -> None:
    result = extension(cache, EXT + f"#include <{header}>\n" + KERNEL + FORWARD + MODULE)
    assert result.status == "compile_error" and header in result.log


def test_log_carries_the_authors_lines(cache: Path) -> None:
    source = EXT + KERNEL + "torch::Tensor forward(torch::Tensor x) {\n  int a = 1;\n  return nothing;\n}\n" + MODULE
    assert "cuda.cu:5" in extension(cache, source).log
    device = EXT + "\n\n__global__ void k(float* y) {\n  nothing;\n}\n" + FORWARD + MODULE
    assert "cuda.cu(5)" in extension(cache, device).log


def test_logs_are_short(cache: Path) -> None:
    body = "\n".join(f"int a{k} = missing_{k};" for k in range(400))
    result = extension(cache, "", wrapper(body))
    assert result.status == "compile_error" and len(result.log) < 4300


SECRET = "#include {}\n"
ESCAPES = [
    '"/etc/passwd"',
    "</etc/passwd>",
    '"../../../../etc/passwd"',
    "<../../etc/passwd>",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize(
    "directive",
    [
        "#include {}",
        "# /* x */ include {}",
        "#inc\\\nlude {}",
        "%:include {}",
        "#include_next {}",
        "#define P {}\n#include P",
    ],
)
def test_no_file_outside_is_read(cache: Path, path: str, directive: str) -> None:
    for cuda, cpp in ((True, False), (False, True)):
        text = directive.format(path) + "\n"
        source = EXT + KERNEL + FORWARD + MODULE
        result = extension(cache, text + source if cuda else source, text if cpp else "")
        assert result.status == "compile_error"
        assert "root" not in result.log


@pytest.mark.parametrize(
    "body",
    [
        'asm(".incbin \\"/etc/passwd\\"");',
        '_Pragma("unroll" "GCC dependency \\"/etc/passwd\\"")',
        '#define P(x) _Pragma(#x)\nP(GCC dependency "/etc/passwd")',
        '_Pragma("GCC dependency \\"/etc/passwd\\"")',
        "#if __has_include(</etc/passwd>)\n#endif",
    ],
)
def test_other_ways_to_read_files_are_refused(cache: Path, body: str) -> None:
    assert extension(cache, "", wrapper(body)).status == "compile_error"


def test_includes_are_listed() -> None:
    assert includes.check('#include <a/b.h>\n  # include "c.h" // x\n', "f") == ("a/b.h", "c.h")


def test_flags_are_filtered() -> None:
    assert device_flags(
        ("-O3", "--use_fast_math", "-DA=3", "-Xptxas", "-v", "-I/etc", "-std=c++17", "-DB=(1.0f)", "-DC(v)=v * v")
    ) == (
        "--use_fast_math",
        "-DA=3",
        "--std=c++17",
        "-DB=(1.0f)",
        "-DC(v)=v * v",
    )
    assert device_flags(("-D\nA=1", "-DA=1\n#include </etc/passwd>", "--relocatable-device-code=true")) == ()
    flags = cpp_flags(("-O3", "-fopenmp", "-fplugin=/tmp/x.so", "-march=native", "-specs=x", "-Wl,-z", "@/etc/passwd"))
    assert flags == ("-std=gnu++20", "-O3", "-fopenmp", "-march=native")


@pytest.mark.parametrize(
    "text", ["\0", "\ud800", "#", "{" * 3000, "(" * 3000, '"', "/*", "template<", "__global__", "k<<<"]
)
def test_odd_text_never_raises(cache: Path, text: str) -> None:
    for request in (
        BuildRequest("extension", "x", text + KERNEL),
        BuildRequest("extension", "x", "", text, ("forward",)),
        BuildRequest("device", "x", text),
        BuildRequest("instances", "x", KERNEL, expressions=(text,)),
    ):
        result = build(request, cache)
        assert result.status in ("ok", "compile_error", "unsupported")
        json.dumps(result.log.encode("utf-8", "replace").decode())


def test_device_and_instances(cache: Path) -> None:
    source = "template <class T, int N> __global__ void k(T* x) { x[0] = N; }\n"
    result = build(BuildRequest("instances", cuda_source=source, expressions=("k<float, 4>",)), cache)
    assert result.status == "ok" and result.lowered["k<float, 4>"] in (result.ptx or "")
    assert build(BuildRequest("device", cuda_source="__global__ void k() { oops }"), cache).status == "compile_error"


def test_plain_files() -> None:
    assert exported_functions(FORWARD + MODULE) == ("forward",)
    assert exported_functions("torch::Tensor forward(torch::Tensor x) { return x; }") == ("forward",)
    assert exported_functions("static torch::Tensor forward(torch::Tensor x) { return x; }") == ()
    assert exported_functions("torch::Tensor forward(torch::Tensor x);") == ()
    assert exported_functions("__global__ void forward(float* x) { }") == ()
    assert exported_functions("namespace a { int forward() { return 1; } }") == ()


def test_plain_file_builds(cache: Path) -> None:
    cpp = plain_extension_source("p", "torch::Tensor forward(torch::Tensor x) { return x + 1; }", cuda=False)
    assert build(cpp, cache).functions == ("forward",)
    cuda = build(plain_extension_source("p", KERNEL + FORWARD, cuda=True), cache)
    assert cuda.status == "ok", cuda.log
    broken = build(
        plain_extension_source("p", "torch::Tensor forward(torch::Tensor x) {\n return z; }", cuda=False), cache
    )
    assert "main.cpp:2" in broken.log


DISPATCHED = """
template <typename scalar_t> __global__ void shift(const scalar_t* a, scalar_t* b) {{
  extern __shared__ {shared} kept[];
  kept[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = kept[31 - threadIdx.x];
}}
torch::Tensor f(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.{type}(), "f", ([&] {{
    shift<scalar_t><<<1, 32, 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>());
  }}));
  return y;
}}
"""


@pytest.mark.parametrize(
    ("shared", "kind", "status", "message"),
    [
        ("float", "scalar_type", "ok", ""),
        ("scalar_t", "scalar_type", "compile_error", "incompatible with previous"),
        ("float", "type", "compile_error", "use of deleted function"),
    ],
)
def test_what_a_gpu_build_refuses_is_refused(cache: Path, shared: str, kind: str, status: str, message: str) -> None:
    """Both texts were accepted once; a comparison with torch's own build found them."""
    source = DISPATCHED.format(shared=shared, type=kind)
    request = BuildRequest(
        "extension", name="m", cuda_source=source, cpp_source="torch::Tensor f(torch::Tensor x);", functions=("f",)
    )
    result = build(request, cache)
    assert result.status == status and message in result.log


NESTED = """#include <torch/extension.h>
__global__ void child(float* y) { y[threadIdx.x] = 2.f; }
__global__ void k(float* y) { if (!threadIdx.x) BODY; }
torch::Tensor f(torch::Tensor x) { k<<<1, 32>>>(x.data_ptr<float>()); return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }
"""


@pytest.mark.parametrize("flags", [("-rdc=true",), ("--relocatable-device-code=true",), ("-rdc", "true"), ("-dc",)])
@pytest.mark.parametrize("body", ["child<<<1, 32>>>(y)", "cudaDeviceSynchronize()"])
def test_dynamic_parallelism_is_unsupported_by_name(cache: Path, body: str, flags: tuple[str, ...]) -> None:
    result = build(BuildRequest("extension", "nested", NESTED.replace("BODY", body), cuda_flags=flags), cache)
    assert (result.status, result.missing[:1]) == (
        "unsupported",
        ("dynamic parallelism: a kernel that launches kernels",),
    ), result.log


def test_a_launch_in_a_kernel_is_an_error_without_relocatable_code(cache: Path) -> None:
    source = NESTED.replace("BODY", "child<<<1, 32>>>(y)")
    result = build(BuildRequest("extension", "nested", source), cache)
    assert result.status == "compile_error", result.missing
